"""Reserve: permits reserved for light tenants and lanes, as many as past waits have shown to be needed."""

from __future__ import annotations

from typing import Final

RETENTION_S: Final = 30.0
"""Seconds after the last wait that the reserve would have avoided, after which one permit is given up."""


class Reserve:
    """Number of reserved permits, 0 until a request below its fair share had to wait; the time is passed in."""

    __slots__ = ("_at", "_level")

    def __init__(self) -> None:
        self._level = 0
        self._at = 0.0

    @property
    def most(self) -> int:
        """Number of reserved permits before decay; never below the level."""
        return self._level

    def level(self, now: float) -> int:
        """Return the number of permits to keep free now."""
        if self._level and now - self._at > RETENTION_S:
            num_given_up = int((now - self._at) / RETENTION_S)
            self._level = max(self._level - num_given_up, 0)
            self._at += num_given_up * RETENTION_S
        return self._level

    def note_wait(self, now: float, most: int) -> None:
        """Reserve one more permit after a wait, up to `most`."""
        self._level = min(self.level(now) + 1, most)
        self._at = now
