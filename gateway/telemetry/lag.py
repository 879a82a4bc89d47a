"""LagMeter: delay of the event loop's timers, the first sign that something blocks the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 0.1


class LagMeter:
    """Repeating timer that measures its own delay and keeps the worst one since the last reading."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        interval_s: float = INTERVAL_S,
        on_tick: Callable[[float], None] | None = None,
    ) -> None:
        """Create a stopped meter.

        Args:
            loop: The event loop to measure.
            interval_s: Seconds between two measurements.
            on_tick: Called with each delay, in seconds.
        """
        self._loop = loop
        self._on_tick = on_tick
        self._interval_s = interval_s
        self._due_at = 0.0
        self._worst_s = 0.0
        self.late_s = 0.0
        """Sum of all delays so far, in seconds."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure."""
        self._due_at = self._loop.time() + self._interval_s
        self._timer = self._loop.call_at(self._due_at, self._tick)

    def stop(self) -> None:
        """Stop measuring. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_worst_s(self) -> float:
        """Return the worst delay since the last call, in seconds."""
        worst_s, self._worst_s = self._worst_s, 0.0
        return worst_s

    def _tick(self) -> None:
        lag_s = self._loop.time() - self._due_at
        self._worst_s = max(self._worst_s, lag_s)
        self.late_s += lag_s
        if self._on_tick is not None:
            self._on_tick(lag_s)
        self.start()
