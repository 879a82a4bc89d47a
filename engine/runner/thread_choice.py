"""One thread or all for steps of one sort, by what either took lately in the same place. Pure."""

from __future__ import annotations

from collections import deque
from statistics import median

_STEPS_BETWEEN = 24
"""Until the next trial while little is known."""
_STEPS_BETWEEN_KNOWN = 400
_STEPS_BETWEEN_ATTEMPTS = 5
"""The same when steps in the middle of a trial were not alike."""
_KEPT = 9
_FEWEST = 5
"""Trials that a decision takes."""
_SAVED_BY_ALL = 1.2
"""All threads have to be so many times as fast to be worth it: they take the front's cores as well."""
_SAVED_BY_ALL_STILL = 1.1
"""The same where all are used already, so that neither is left for chance."""


class ThreadChoice:
    """What a start on an idle machine measures holds neither beside the front nor for the life of a process, so now and
    then two steps run the other way; of these the second one counts, which finds threads and caches in place."""

    def __init__(self, *, is_single: bool) -> None:
        """`is_single`: whether one thread is used until more is known."""
        self.is_single = is_single
        # How many times as long the other way took.
        self._ratios: deque[float] = deque(maxlen=_KEPT)
        self._num_left = _STEPS_BETWEEN
        # Of the trial under way: how large its steps are, what the usual way took, how many ran the other way.
        self._size = 0
        self._usual_s = 0.0
        self._num_tried = 0

    def next_is_single(self, size: int) -> bool:
        """How the next step runs, which is so large."""
        if self._num_left or not self._usual_s:
            return self.is_single
        if size != self._size:
            self._wait(_STEPS_BETWEEN_ATTEMPTS)
            return self.is_single
        return not self.is_single

    def observe(self, size: int, seconds: float) -> None:
        """It took so long."""
        if self._num_left:
            self._num_left -= 1
        elif not self._usual_s:
            self._size, self._usual_s = size, seconds
        else:
            self._num_tried += 1
            if self._num_tried == 2:
                self._conclude(seconds / self._usual_s)

    def _conclude(self, ratio: float) -> None:
        self._ratios.append(ratio)
        is_known = len(self._ratios) == _KEPT
        self._wait(_STEPS_BETWEEN_KNOWN if is_known else _STEPS_BETWEEN)
        if len(self._ratios) < _FEWEST:
            return
        ratio = median(self._ratios)
        is_other_better = ratio * _SAVED_BY_ALL < 1.0 if self.is_single else ratio < _SAVED_BY_ALL_STILL
        if is_other_better:
            self.is_single = not self.is_single
            self._ratios.clear()

    def _wait(self, num_steps: int) -> None:
        self._num_left = num_steps
        self._usual_s = 0.0
        self._num_tried = 0
