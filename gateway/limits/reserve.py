"""Reserve: permits kept free for those who ask rarely, as many as their waits have shown to be needed."""

from __future__ import annotations

from typing import Final

KEPT_S: Final = 30.0
"""One permit of the reserve is given up when for so long nobody had to wait for want of it."""


class Reserve:
    """Costs nothing until somebody below a fair share had to wait; it is told the time."""

    __slots__ = ("_at", "_level")

    def __init__(self) -> None:
        self._level = 0
        self._at = 0.0

    @property
    def most(self) -> int:
        """The level before what time took off is counted; never below the level."""
        return self._level

    def level(self, now: float) -> int:
        """Permits to keep free now."""
        if self._level and now - self._at > KEPT_S:
            num_given_up = int((now - self._at) / KEPT_S)
            self._level = max(self._level - num_given_up, 0)
            self._at += num_given_up * KEPT_S
        return self._level

    def note_wait(self, now: float, most: int) -> None:
        """Somebody had to wait: one more, up to `most`."""
        self._level = min(self.level(now) + 1, most)
        self._at = now
