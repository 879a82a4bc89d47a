"""Keeps speculation from costing time where its forecasts are wrong: by what steps really gained."""

from __future__ import annotations

_DECAY = 0.9
_MIN_WEIGHT = 4.0
_FIRST_PAUSE = 16
_LONGEST_PAUSE = 1024
_HICCUP_RATIO = 2.0
"""A step that took longer than so many times what it was worth is not told from one that took as long."""


class Guard:
    """Gain of recent speculative steps over plain ones; pauses double as long as trying again does not pay."""

    def __init__(self, *, longest_pause: int = _LONGEST_PAUSE) -> None:
        """`longest_pause`: most steps until speculation is tried again."""
        self._longest_pause = longest_pause
        self._worth_s = 0.0
        self._spent_s = 0.0
        self._weight = 0.0
        self._pause = _FIRST_PAUSE
        self._num_left = 0

    @property
    def is_open(self) -> bool:
        """Whether the next step may speculate."""
        return not self._num_left

    def allows(self) -> bool:
        """The same; asked once a step, it counts a pause down."""
        if self.is_open:
            return True
        self._num_left -= 1
        return False

    def observe(self, worth_s: float, spent_s: float) -> None:
        """A speculative step took `spent_s` for tokens that plain steps would have taken `worth_s` for."""
        spent_s = min(spent_s, _HICCUP_RATIO * worth_s)
        self._worth_s = _DECAY * self._worth_s + worth_s
        self._spent_s = _DECAY * self._spent_s + spent_s
        self._weight = _DECAY * self._weight + 1.0
        if self._weight < _MIN_WEIGHT:
            return
        if self._worth_s >= self._spent_s:
            self._pause = _FIRST_PAUSE
            return
        self._num_left = self._pause
        self._pause = min(2 * self._pause, self._longest_pause)
        self._worth_s = self._spent_s = self._weight = 0.0
