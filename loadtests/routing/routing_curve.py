"""The curve of a router: quality over the share of prompts that the large model answers, and what it is measured by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's quantile, for one degree of freedom and more."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Of each prompt, in [0, 1]."""

    small: Floats
    large: Floats

    def take(self, rows: NDArray[np.int64]) -> Scores:
        """Some of them."""
        return Scores(self.small[rows], self.large[rows])

    @property
    def gap(self) -> float:
        """What the large model is better by on average."""
        return float(self.large.mean() - self.small.mean())

    def apgr(self, need: Floats) -> float:
        """Average performance gap recovered (RouteLLM, 2024) when the prompts with the greatest `need` go to the large
        model first; random order has 0.5. Equal needs share their places."""
        gains = self._ranked(need)
        curve = np.concatenate(([0.0], np.cumsum(gains))) / len(gains) / self.gap
        return float(np.trapezoid(curve, dx=1.0 / len(gains)))

    def interval(self) -> float:
        """Half the width of a random router's 95 % interval."""
        spread = float((self.large - self.small).std()) / (self.gap * math.sqrt(12 * len(self.small)))
        return 1.96 * spread

    def ratio_at(self, need: Floats, share: float) -> float:
        """Accuracy over that of the large model alone, with this share of the calls going to it."""
        gains = self._ranked(need)
        return float((self.small.mean() + gains[: int(share * len(gains))].sum() / len(gains)) / self.large.mean())

    def ratio_of(self, is_large: NDArray[np.bool_]) -> float:
        """The same for given choices."""
        return float(np.where(is_large, self.large, self.small).mean() / self.large.mean())

    def _ranked(self, need: Floats) -> Floats:
        """Gains in the order of need; those of equal need averaged."""
        _, place, counts = np.unique(-need, return_inverse=True, return_counts=True)
        means = np.bincount(place, weights=self.large - self.small) / counts
        return np.asarray(np.repeat(means, counts), dtype=np.float64)


def mean_and_half_width(values: Sequence[float]) -> tuple[float, float]:
    """And of the mean's 95 % interval, as if the values were independent; 0 for a single one."""
    if len(values) < 2:
        return float(np.mean(values)), 0.0
    quantile = _T_95[min(len(values) - 1, len(_T_95)) - 1]
    return float(np.mean(values)), quantile * float(np.std(values, ddof=1)) / math.sqrt(len(values))
