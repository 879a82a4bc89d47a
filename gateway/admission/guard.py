"""OverloadGuard: refuses new work while this process is overloaded, by its event loop's lag and its memory."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from gateway.errors import Shed, ShedReason
from gateway.limits.lane import LiveLane

STRAINED_LAG_S: Final = 0.25
OVERLOADED_LAG_S: Final = 1.0
"""Mean delay of a timer, in seconds, at overload; a healthy gateway serves its timers within milliseconds."""
STRAINED_MEMORY_RATIO: Final = 0.9
CALM_RATIO: Final = 0.5
"""Share of a lag threshold below which the lag must fall before work is taken again."""
MEMORY_EVERY_TICKS: Final = 10

_SMOOTHING: Final = 0.5


class Strain(IntEnum):
    """Level of refusal under event loop lag: nothing, the traffic that can best wait, everything."""

    NONE = 0
    STRAINED = 1
    OVERLOADED = 2


class OverloadGuard:
    """Overload guard: every tick of the lag meter updates it, and every request consults it."""

    __slots__ = (
        *("_lag_s", "_lag_strain", "_last_lag_s", "_memory_limit", "_memory_strain", "_num_ticks"),
        *("_resident_bytes", "strain"),
    )

    def __init__(self, *, memory_limit_bytes: int | None, resident_bytes: Callable[[], int | None]) -> None:
        """Create a guard; with `memory_limit_bytes` None, memory is ignored."""
        self._memory_limit = memory_limit_bytes
        self._resident_bytes = resident_bytes
        self._lag_s = 0.0
        self._last_lag_s = 0.0
        self._lag_strain = Strain.NONE
        self._memory_strain = Strain.NONE
        self._num_ticks = 0
        self.strain = Strain.NONE

    def note_lag(self, lag_s: float) -> None:
        """Record that a timer of the event loop came `lag_s` late.

        One late timer alone is no overload: the machine stood still, or one piece of work took long, and it is over.
        """
        lasting_s, self._last_lag_s = min(lag_s, self._last_lag_s), lag_s
        self._lag_s += _SMOOTHING * (lasting_s - self._lag_s)
        self._lag_strain = _strain_of_lag(self._lag_s, self._lag_strain)
        if self._memory_limit is not None and self._num_ticks % MEMORY_EVERY_TICKS == 0:
            self._memory_strain = _strain_of_memory((self._resident_bytes() or 0) / self._memory_limit)
        self._num_ticks += 1
        self.strain = max(self._lag_strain, self._memory_strain)

    def check(self, lane: LiveLane, heaviest: float, *, is_retry: bool) -> None:
        """Refuse a request of this lane if the current strain excludes it.

        First retries and lanes that weigh less than the `heaviest` are excluded, then everything.

        Raises:
            Shed: The request is excluded (`overload`).
        """
        if self.strain is Strain.OVERLOADED or (self.strain and (is_retry or lane.rules.weight < heaviest)):
            raise Shed(
                ShedReason.OVERLOAD,
                lane=lane.id,
                message="This gateway has more work than it can do. Try again after the time in Retry-After.",
                hint="The same request at a later time, or at another replica.",
                queue_depth=lane.total_waiting,
                predicted_wait_s=self._lag_s,
            )


def _strain_of_lag(lag_s: float, before: Strain) -> Strain:
    """Return the strain of the lag, with hysteresis: it ends at half of the threshold that began it."""
    for strain, threshold_s in ((Strain.OVERLOADED, OVERLOADED_LAG_S), (Strain.STRAINED, STRAINED_LAG_S)):
        if lag_s >= (threshold_s * CALM_RATIO if before >= strain else threshold_s):
            return strain
    return Strain.NONE


def _strain_of_memory(ratio: float) -> Strain:
    if ratio >= 1.0:
        return Strain.OVERLOADED
    return Strain.STRAINED if ratio >= STRAINED_MEMORY_RATIO else Strain.NONE
