"""The choice among several ways to compute one sort of step, corrected by what they take while serving. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import cycle
from statistics import median
from typing import Generic, TypeVar

Way = TypeVar("Way")

_TRIALS_REMEMBERED = 9
_MIN_TRIALS = 5
"""Trials of a way before it can be chosen."""
_STEPS_BETWEEN = 24
"""Steps until the next trial while a way has fewer trials than are remembered."""
_STEPS_BETWEEN_KNOWN = 400
_STEPS_BETWEEN_ATTEMPTS = 5
"""Steps until a trial is taken up again after its steps were not alike."""
_MIN_GAIN = 1.045
"""Least ratio of speeds at which another way replaces the present one, so that noise does not change the choice."""


class WayChoice(Generic[Way]):
    """Choice between ways to compute the next step of one sort.

    The first way holds from the start: it follows from the processor and the shapes, so a busy machine cannot spoil it.
    Now and then, two steps of like size run another way. Only the second one counts, because threads and caches are
    ready for it. A way that is faster in the median of recent trials replaces the present one, which is then tried in
    turn.

    Args:
        handicaps: The ways, each with a factor on its seconds in comparisons: above 1 for a way with a cost that the
            step's duration does not include.
        first: The way until trials show a faster one.
        tolerance: Largest ratio between the sizes of two steps that are compared; sizes are compared per unit.
        max_trial_s: Longest step, in seconds, that a way other than `first` is tried on.
    """

    def __init__(
        self,
        handicaps: Mapping[Way, float],
        first: Way,
        *,
        tolerance: float = 1.0,
        max_trial_s: float = float("inf"),
    ) -> None:
        self.way = first
        self._first = first
        self._handicaps = handicaps
        self._tolerance = tolerance
        self._max_trial_s = max_trial_s
        self._candidates = cycle([way for way in handicaps if way != first] + [first])
        # How many times as long as the chosen way each other way took.
        self._ratios: dict[Way, deque[float]] = {}
        self._num_left = _STEPS_BETWEEN
        self._trial: Way | None = None
        self._usual_size = 0.0
        self._usual_s = 0.0
        self._num_tried = 0

    def next_way(self, size: float) -> Way:
        """Return the way for the next step, whose size is in any unit that its duration is proportional to."""
        if self._trial is None:
            return self.way
        if max(size, self._usual_size) > self._tolerance * min(size, self._usual_size):
            self._wait(_STEPS_BETWEEN_ATTEMPTS)
            return self.way
        return self._trial

    def observe(self, size: float, seconds: float) -> None:
        """Take in the duration of the step that `next_way` was called for."""
        if self._trial is not None:
            self._num_tried += 1
            if self._num_tried == 2:
                self._conclude(self._trial, seconds / size / (self._usual_s / self._usual_size))
        elif self._num_left:
            self._num_left -= 1
        elif len(self._handicaps) > 1:
            self._begin(size, seconds)

    def _begin(self, size: float, seconds: float) -> None:
        trial = next(way for way in self._candidates if way != self.way)
        if trial != self._first and seconds > self._max_trial_s:
            return
        self._trial, self._usual_size, self._usual_s = trial, size, seconds

    def _conclude(self, trial: Way, ratio: float) -> None:
        ratios = self._ratios.setdefault(trial, deque(maxlen=_TRIALS_REMEMBERED))
        ratios.append(ratio * self._handicaps[trial] / self._handicaps[self.way])
        is_known = len(ratios) == _TRIALS_REMEMBERED
        self._wait(_STEPS_BETWEEN_KNOWN if is_known else _STEPS_BETWEEN)
        if len(ratios) >= _MIN_TRIALS and median(ratios) * _MIN_GAIN < 1.0:
            self.way = trial
            self._ratios.clear()

    def _wait(self, num_steps: int) -> None:
        self._num_left = num_steps
        self._trial = None
        self._num_tried = 0
