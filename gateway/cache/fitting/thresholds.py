"""Thresholds: the least probability to serve that keeps an error bound with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.cache.similarity.decision import Threshold

_NONE_SEEN: Final = 3.689
"""-ln(0.025): the upper 95 % limit of how many there are when none was seen."""


def thresholds_of(
    match_probabilities: NDArray[np.float64],
    wrong: NDArray[np.bool_],
    groups: NDArray[np.int64],
    bounds: Sequence[float],
    *,
    margin: float,
    num_resamples: int,
    rng: np.random.Generator,
) -> tuple[Threshold, ...]:
    """Return for each bound the threshold: the error's upper 95 % limit above it is below `margin` × bound.

    One match probability for each request of a stream (0: nothing to give), whether the answer is wrong, and its group:
    groups are drawn with replacement, since texts of one group are not independent. Error: wrong answers over all
    requests.
    """
    order = np.argsort(-match_probabilities, kind="stable")
    order = order[match_probabilities[order] > 0.0]
    highs = _upper_limits(wrong[order], groups[order], groups, num_resamples, rng)
    found = []
    for bound in sorted(bounds):
        within = np.flatnonzero(highs > margin * bound)
        last = int(within[0]) if len(within) else len(order)
        if last > 0:
            found.append(Threshold(bound, float(math.ceil(match_probabilities[order[last - 1]] * 1e5) / 1e5)))
    return tuple(found)


def _upper_limits(
    wrong: NDArray[np.bool_],
    groups: NDArray[np.int64],
    all_groups: NDArray[np.int64],
    num_resamples: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return the 97.5th percentile over resamples of the error after each served request, most probable first."""
    names, sizes = np.unique(all_groups, return_counts=True)
    place = np.searchsorted(names, groups)
    errors = np.empty((num_resamples, len(wrong)), np.float32)
    for number in range(num_resamples):
        drawn = rng.poisson(1.0, len(names))
        errors[number] = np.cumsum(drawn[place] * wrong) / max(1, int(drawn @ sizes))
    # Resampling cannot see what has not happened yet: without a wrong answer among n the limit is 3.7 / n all the same.
    return np.maximum(np.percentile(errors, 97.5, axis=0), _NONE_SEEN / len(names))
