"""TtftBounds: upper bounds of one deployment's times to first token, with a stated coverage that holds under drift.

A score is log((measured + offset) / (forecast + offset)). The bound of the next request is its forecast times the
quantile of the last scores at the stated coverage: split conformal prediction over a rolling window (Vovk et al. 2005).
Scores are not exchangeable while speed or load drifts, so each stated coverage has a shift that is added to the
quantile. A missed bound raises it, a met one lowers it, in the proportion that leaves it still at the stated coverage:

    shift += step * (is_missed - (1 - coverage))

Whatever the sequence of scores is, the share of missed bounds then tends to 1 - coverage (Gibbs and Candès, "Adaptive
conformal inference under distribution shift", 2021; Angelopoulos, Candès and Tibshirani, "Conformal PID control for
time series prediction", 2023). The bound that counts is the one stated before the request was sent.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from math import ceil, exp, inf, log
from typing import Final

WINDOW: Final = 256
"""Number of scores that a quantile is taken from."""
LEAST_COVERAGE: Final = 0.5
MOST_COVERAGE: Final = 0.99
_OFFSET_S: Final = 0.005
"""Seconds added to both sides of a score, so that times near 0 do not make it large."""
_LEAST_BOUND_S: Final = 0.001
"""Shortest bound that is stated: in the first requests scores may be so low that none could be met."""
_STEP: Final = 0.05
"""Step of a shift: a missed bound at coverage 0.95 raises the next one by 5 %, twenty met ones lower it by as much."""
_MAX_SHIFT: Final = 3.0
"""Largest shift: a bound of 20 times the quantile, beyond which no bound is of use."""


def percent_of(coverage: float) -> int:
    """Return a coverage as a whole percentage, by which bounds are tracked."""
    return round(coverage * 100)


class _Calibration:
    """A rolling window of scores, and the shift of each coverage, in whole percents.

    A shift is added when its coverage is first stated, and none is removed.
    """

    __slots__ = ("_order", "_sorted", "shifts")

    def __init__(self) -> None:
        self._order: deque[float] = deque()
        """Scores, oldest first."""
        self._sorted: list[float] = []
        self.shifts: dict[int, float] = {}

    @property
    def num_scores(self) -> int:
        return len(self._sorted)

    def quantile(self, percent: int) -> float:
        """Return the quantile of the scores that covers the next one; infinite where the window is too short."""
        rank = ceil((len(self._sorted) + 1) * percent / 100)
        return self._sorted[rank - 1] if rank <= len(self._sorted) else inf

    def learn(self, percent: int, *, is_missed: bool) -> None:
        """Move the shift of a coverage after one of its bounds."""
        moved = self.shifts.get(percent, 0.0) + _STEP * (is_missed - (1.0 - percent / 100))
        self.shifts[percent] = min(max(moved, -_MAX_SHIFT), _MAX_SHIFT)

    def add(self, score: float) -> None:
        if len(self._order) >= WINDOW:
            del self._sorted[bisect_left(self._sorted, self._order.popleft())]
        self._order.append(score)
        insort(self._sorted, score)


class TtftBounds:
    """Bounds of one deployment; memory is bounded, and an update takes a search in a sorted window.

    Two kinds of bounds are calibrated apart. Those stated at admission concern the request that is sent now. Quoted
    ones concern a request that comes some seconds later, when the load may be another, so they are usually wider.
    """

    __slots__ = ("_at_once", "_quoted")

    def __init__(self, coverage: float) -> None:
        """Create bounds without scores; `coverage` is tracked from the first score on, others once they are stated."""
        self._at_once = _Calibration()
        self._quoted = _Calibration()
        self._at_once.shifts[percent_of(coverage)] = 0.0

    @property
    def num_scores(self) -> int:
        """Number of scores in the window of requests that were sent at once."""
        return self._at_once.num_scores

    def limits(self) -> tuple[tuple[int, float], ...]:
        """Return the limits that hold for a request sent now, by each coverage that was ever stated, in percent."""
        at_once = self._at_once
        return tuple(
            (percent, limit)
            for percent, shift in at_once.shifts.items()
            if (limit := at_once.quantile(percent) + shift) < inf
        )

    def limit(self, coverage: float) -> float | None:
        """Return the limit of a quoted bound's score; None while too few scores are known for this coverage.

        Until enough quotes came back, the scores of other requests stand in for theirs.
        """
        percent = percent_of(coverage)
        limit = self._quoted.quantile(percent)
        if limit == inf:
            limit = self._at_once.quantile(percent) + self._at_once.shifts.setdefault(percent, 0.0)
        limit += self._quoted.shifts.setdefault(percent, 0.0)
        return limit if limit < inf else None

    def observe(self, forecast_s: float, ttft_s: float, limits: Sequence[tuple[int, float]]) -> None:
        """Learn from a request that was sent at once, with the `limits` at its admission."""
        score = ttft_score_of(forecast_s, ttft_s)
        for percent, limit in limits:
            self._at_once.learn(percent, is_missed=score > limit)
        self._at_once.add(score)

    def observe_quoted(self, forecast_s: float, ttft_s: float, coverage: float, bound_s: float) -> None:
        """Learn from a request whose bound was quoted before."""
        self._quoted.learn(percent_of(coverage), is_missed=ttft_s > bound_s)
        self._quoted.add(ttft_score_of(forecast_s, ttft_s))


def ttft_score_of(forecast_s: float, ttft_s: float) -> float:
    """Return the score of a measured time to first token beside its forecast."""
    return log((max(ttft_s, 0.0) + _OFFSET_S) / (max(forecast_s, 0.0) + _OFFSET_S))


def ttft_bound_of(forecast_s: float, limit: float) -> float:
    """Return the time in seconds at which a forecast reaches the limit of its score, and at least a millisecond."""
    return max((max(forecast_s, 0.0) + _OFFSET_S) * exp(limit) - _OFFSET_S, _LEAST_BOUND_S)
