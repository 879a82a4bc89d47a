"""The choice of threads for one sort of step, corrected by what steps take while serving. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import cycle
from statistics import median

_TRIALS_REMEMBERED = 9
_MIN_TRIALS = 5
"""Trials of a number of threads before it can be chosen."""
_STEPS_BETWEEN = 24
"""Steps until the next trial while a number has fewer trials than are remembered."""
_STEPS_BETWEEN_KNOWN = 400
_STEPS_BETWEEN_ATTEMPTS = 5
"""Steps until a trial is taken up again after its steps were not alike."""
_MIN_GAIN = 1.045
"""Least ratio of speeds at which another number replaces the present one, so that noise does not change the choice."""


class ThreadChoice:
    """Choice of the number of threads for the next step of one sort.

    The first number holds from the start: it follows from the processor and the shapes, so a busy machine cannot spoil
    it. Now and then, two steps of equal size run on another number. Only the second one counts, because threads and
    caches are ready for it. A number that is faster in the median of recent trials replaces the present one, which is
    then tried in turn.

    Args:
        handicaps: The numbers of threads, each with a factor on its seconds in comparisons: above 1 for one with a cost
            that the step's duration does not include.
        first: The number until trials show a faster one.
    """

    def __init__(self, handicaps: Mapping[int, float], first: int) -> None:
        self.num_threads = first
        self._handicaps = handicaps
        self._candidates = cycle([number for number in handicaps if number != first] + [first])
        # How many times as long as the chosen number each other number took.
        self._ratios: dict[int, deque[float]] = {}
        self._num_left = _STEPS_BETWEEN
        self._trial: int | None = None
        self._usual_size = 0
        self._usual_s = 0.0
        self._num_tried = 0

    def next_threads(self, num_tokens: int) -> int:
        """Return the number of threads for the next step, of so many tokens."""
        if self._trial is None:
            return self.num_threads
        if num_tokens != self._usual_size:
            self._wait(_STEPS_BETWEEN_ATTEMPTS)
            return self.num_threads
        return self._trial

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Take in the duration of the step that `next_threads` was called for."""
        if self._trial is not None:
            self._num_tried += 1
            if self._num_tried == 2:
                self._conclude(self._trial, seconds / self._usual_s)
        elif self._num_left:
            self._num_left -= 1
        elif len(self._handicaps) > 1:
            self._trial = next(number for number in self._candidates if number != self.num_threads)
            self._usual_size, self._usual_s = num_tokens, seconds

    def _conclude(self, trial: int, ratio: float) -> None:
        ratios = self._ratios.setdefault(trial, deque(maxlen=_TRIALS_REMEMBERED))
        ratios.append(ratio * self._handicaps[trial] / self._handicaps[self.num_threads])
        is_known = len(ratios) == _TRIALS_REMEMBERED
        self._wait(_STEPS_BETWEEN_KNOWN if is_known else _STEPS_BETWEEN)
        if len(ratios) >= _MIN_TRIALS and median(ratios) * _MIN_GAIN < 1.0:
            self.num_threads = trial
            self._ratios.clear()

    def _wait(self, num_steps: int) -> None:
        self._num_left = num_steps
        self._trial = None
        self._num_tried = 0
