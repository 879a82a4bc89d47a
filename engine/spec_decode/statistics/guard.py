"""Keeps speculation from costing time where its forecasts are wrong: by what steps really gained."""

from __future__ import annotations

_DECAY = 0.9
_MIN_WEIGHT = 4.0
_FIRST_PAUSE = 8
"""Short: a machine that is slower all at once looks like drafts that do not pay, and so many plain steps tell."""
_LONGEST_PAUSE = 1024
_HICCUP_RATIO = 1.5
"""A step that took longer than so many times what it was worth is not told from one that took as long."""


class SpeculationGuard:
    """Gain of recent speculative steps over plain ones; pauses double as long as trying again does not pay."""

    def __init__(self, *, first_pause: int = _FIRST_PAUSE, longest_pause: int = _LONGEST_PAUSE) -> None:
        """Fewest and most steps until speculation is tried again."""
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._worth_s = 0.0
        self._spent_s = 0.0
        self._weight = 0.0
        self._pause = first_pause
        self._num_left = 0

    @property
    def is_open(self) -> bool:
        """Whether the next step may speculate."""
        return not self._num_left

    @property
    def num_paused(self) -> int:
        """Steps that are still to be asked about until one may speculate."""
        return self._num_left

    def allows(self) -> bool:
        """The same; asked once a step, it counts a pause down."""
        if not self._num_left:
            return True
        self._num_left -= 1
        return False

    def pass_steps(self, num_steps: int) -> None:
        """Count a pause down by steps that are not asked about."""
        self._num_left = max(0, self._num_left - num_steps)

    def observe(self, worth_s: float, spent_s: float) -> None:
        """A speculative step took `spent_s` for tokens that plain steps would have taken `worth_s` for."""
        spent_s = min(spent_s, _HICCUP_RATIO * worth_s)
        self._worth_s = _DECAY * self._worth_s + worth_s
        self._spent_s = _DECAY * self._spent_s + spent_s
        self._weight = _DECAY * self._weight + 1.0
        if self._weight < _MIN_WEIGHT:
            return
        if self._worth_s >= self._spent_s:
            self._pause = self._first_pause
            return
        self._num_left = self._pause
        self._pause = min(2 * self._pause, self._longest_pause)
        self._worth_s = self._spent_s = self._weight = 0.0
