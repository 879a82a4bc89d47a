"""SharedClock: the time that all processes with one store agree on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

STEP_S: Final = 1.0
"""Least difference that is followed; below it the machines' own clocks are as good as the measurement."""


class SharedClock:
    """Seconds since 1970 by this machine's clock, set right where the store's clock says otherwise.

    What one process writes with an instant, such as the end of a cached response or of a key, another one compares
    with its own clock. A machine whose clock is wrong would see it end early or late.
    """

    __slots__ = ("_skew_s", "_wall")

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._skew_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self._wall() + self._skew_s

    @property
    def skew_s(self) -> float:
        """Seconds by which this machine's clock is late."""
        return self._skew_s

    def note(self, store_now: float) -> None:
        """Note what the store's clock shows now."""
        skew_s = store_now - self._wall()
        if abs(skew_s - self._skew_s) > STEP_S:
            self._skew_s = skew_s if abs(skew_s) > STEP_S else 0.0
