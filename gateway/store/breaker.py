"""Breaker: rests a server of the store after failures, so that one in trouble costs no request any time."""

from __future__ import annotations

import math
from typing import Final

FAILURES_TO_OPEN: Final = 2
FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 0.5
"""Longest time between two trials, so that a new primary is in use within that time."""


class Breaker:
    """A circuit breaker, closed or open; its watcher alone tries an open one, at intervals that double."""

    __slots__ = ("_answered_at", "_failures", "_pause_s", "_retry_at")

    def __init__(self) -> None:
        self._answered_at = -math.inf
        self._failures = 0
        self._retry_at: float | None = None
        self._pause_s = FIRST_PAUSE_S

    @property
    def is_closed(self) -> bool:
        """Return whether operations are tried."""
        return self._retry_at is None

    def is_trial_due(self, now: float) -> bool:
        """Return whether an open breaker should be tried now."""
        return self._retry_at is not None and now >= self._retry_at

    def note_trial(self, now: float) -> None:
        """Note that an open breaker is tried; the next trial is due after a pause, even if this one still waits."""
        self._pause_s = min(self._pause_s * 2, MAX_PAUSE_S)
        self._retry_at = now + self._pause_s

    def note_hint(self) -> None:
        """Make a trial of an open breaker due now, because there is a reason to expect a success."""
        if self._retry_at is not None:
            self._retry_at = -math.inf
            self._pause_s = FIRST_PAUSE_S

    def note_success(self, now: float) -> None:
        """Close the breaker after a success."""
        self._answered_at = now
        self._failures = 0
        self._retry_at = None
        self._pause_s = FIRST_PAUSE_S

    def note_failure(self, now: float, *, began_at: float, is_sure: bool) -> None:
        """Note the failure of an operation; a sure one, such as a refused connection, opens the breaker at once.

        One that began before the last success does not count: it may have hung at a server that was replaced since.
        """
        if began_at < self._answered_at:
            return
        self._failures += 1
        if self._retry_at is None and (is_sure or self._failures >= FAILURES_TO_OPEN):
            self._retry_at = now + self._pause_s
