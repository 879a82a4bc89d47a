"""LookupTimes: recent times of lookups and of upstream responses, and whether a lookup would come in time.

A lookup that races the upstream call is of use only if it ends before the response begins. Each response is compared
with the latest lookups before it, since a busy machine slows both. A lookup begins where at most `MAX_LATE_RATIO` of a
source's recent comparisons have a lookup, lengthened by a margin, that is slower than the response.

The margin follows what happened: a late lookup multiplies it by e^STEP, one in time divides it by
e^(STEP * r / (1 - r)), so that about the share r of the lookups is late (adaptive conformal inference, Gibbs and Candès
2021). It also fades with time, so that a route without lookups is tried again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from math import exp
from typing import Final, NamedTuple

from gateway.util.bounded_dict import Recent

MAX_LATE_RATIO: Final = 0.05
"""Largest share of slower lookups, by the estimate, with which a lookup begins."""
STEP: Final = 0.4
_AIM: Final = 0.03
"""Share of late lookups that the margin steers to, below the largest one."""
_FIRST_MARGIN: Final = 0.2
_MAX_MARGIN: Final = 3.0
"""Largest logarithm of the margin: twenty times as long."""
_FADES_S: Final = 120.0
"""Time in which the logarithm of a margin falls to 37 %, in seconds."""
_LATEST: Final = 4
"""Lookups that a response is compared with."""
_MAX_RATIOS: Final = 80
_MIN_RATIOS: Final = 16
"""Comparisons without which a lookup begins: too few to skip it for."""
_STALE_S: Final = 60.0
"""Age in seconds of the newest lookup from which one begins in any case, to show how long they take now."""
_MAX_SOURCES: Final = 4096
_SMOOTHING: Final = 0.05
_LEAST_S: Final = 1e-6


class ResponseOrigin(NamedTuple):
    """The source of a response, as far as its time depends on it."""

    route: str
    deployment: str
    """Id of the deployment; empty where none is chosen yet."""
    is_stream: bool


class _Responses:
    """Recent responses of one source, each as a multiple of the lookups before it, and the margin of their races."""

    __slots__ = ("_by_age", "_margin", "_margin_at", "_sorted")

    def __init__(self, now: float) -> None:
        self._by_age: deque[float] = deque()
        self._sorted: list[float] = []
        self._margin = _FIRST_MARGIN
        self._margin_at = now

    def add(self, ratio: float) -> None:
        """Add a response's time over a lookup's."""
        if len(self._by_age) == _MAX_RATIOS:
            del self._sorted[bisect_left(self._sorted, self._by_age.popleft())]
        self._by_age.append(ratio)
        insort(self._sorted, ratio)

    def late_ratio(self, num_waiting: int, now: float, held_ratio: float) -> float:
        """Return the share of responses that would begin before a lookup ends; 0 where too little is known."""
        if len(self._sorted) < _MIN_RATIOS:
            return 0.0
        longer = exp(self._margin_now(now)) * (1 + num_waiting) / (1.0 + held_ratio)
        return bisect_left(self._sorted, longer) / len(self._sorted)

    def note_race(self, now: float, *, is_late: bool) -> None:
        """Adjust the margin to a lookup that raced a response."""
        step = STEP if is_late else -STEP * _AIM / (1.0 - _AIM)
        self._margin = min(_MAX_MARGIN, max(0.0, self._margin_now(now) + step))

    def _margin_now(self, now: float) -> float:
        self._margin *= exp((self._margin_at - now) / _FADES_S)
        self._margin_at = now
        return self._margin


class LookupTimes:
    """Times of one process; measurements and the time of the clock are passed in, all in seconds."""

    __slots__ = ("_latest", "_newest_at", "_search_s", "_sources")

    def __init__(self) -> None:
        """Start without times."""
        self._sources: Recent[ResponseOrigin, _Responses] = Recent(_MAX_SOURCES)
        self._latest: deque[float] = deque(maxlen=_LATEST)
        self._search_s = 0.0
        self._newest_at = 0.0

    def note_begin(self, now: float) -> None:
        """Note that a lookup begins: it will show how long they take now."""
        self._newest_at = now

    def note_lookup(self, took_s: float, search_s: float | None, num_waiting: int, now: float) -> None:
        """Note a lookup that ended, or a text that was encoded without one.

        Args:
            took_s: Time from its beginning to its end.
            search_s: The part of it after the encoding; None without a search.
            num_waiting: Texts that waited for the encoder when it began, which it waited for, too.
            now: Time of the clock.
        """
        if search_s is None:
            took_s += self._search_s
        else:
            self._search_s += _SMOOTHING * (search_s - self._search_s)
        self._newest_at = now
        self._latest.append(max(took_s / (1 + num_waiting), _LEAST_S))

    def note_response(self, source: ResponseOrigin, took_s: float, now: float) -> None:
        """Note the time from a request's dispatch to the beginning of its response."""
        responses = self._of(source, now)
        for lookup_s in self._latest:
            responses.add(took_s / lookup_s)

    def note_race(self, source: ResponseOrigin, now: float, *, is_late: bool) -> None:
        """Note whether a lookup ended after the response had begun."""
        self._of(source, now).note_race(now, is_late=is_late)

    def may_begin(self, source: ResponseOrigin, num_waiting: int, now: float, *, held_ratio: float = 0.0) -> bool:
        """Return whether a lookup would come in time, or too little is known to say no.

        Args:
            source: The source of the response.
            num_waiting: Texts that wait for the encoder.
            now: Time of the clock.
            held_ratio: Part of its own time by which a response is held back for the lookup.
        """
        return (
            now - self._newest_at > _STALE_S or self.late_ratio(source, num_waiting, now, held_ratio) <= MAX_LATE_RATIO
        )

    def lookup_s(self, num_waiting: int) -> float:
        """Return the mean time of the latest lookups, with so many texts before them; 0 where none is known."""
        return (1 + num_waiting) * sum(self._latest) / max(1, len(self._latest))

    def late_ratio(self, source: ResponseOrigin, num_waiting: int, now: float, held_ratio: float = 0.0) -> float:
        """Return the share of recent responses that would begin before a lookup ends; 0 where too little is known."""
        responses = self._sources.get(source)
        return 0.0 if responses is None else responses.late_ratio(num_waiting, now, held_ratio)

    def _of(self, source: ResponseOrigin, now: float) -> _Responses:
        found = self._sources.get(source)
        if found is None:
            found = self._sources[source] = _Responses(now)
        else:
            self._sources.move_to_end(source)
        return found
