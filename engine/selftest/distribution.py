"""Test whether two samples of tokens come from one distribution. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_MIN_COUNT = 10
"""Minimum count of a token in both samples together; rarer ones are counted as one."""


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """Result of a two-sample chi-square test."""

    statistic: float
    degrees_of_freedom: int

    @property
    def p_value(self) -> float:
        """Probability of a statistic at least this large under one distribution (Wilson and Hilferty, 1931)."""
        if not self.degrees_of_freedom:
            return 1.0
        spread = 2.0 / (9.0 * self.degrees_of_freedom)
        cube_root = (self.statistic / self.degrees_of_freedom) ** (1.0 / 3.0)
        return 0.5 * math.erfc((cube_root - (1.0 - spread)) / math.sqrt(2.0 * spread))

    def __add__(self, other: ChiSquare) -> ChiSquare:
        """Combine the results of independent samples."""
        return ChiSquare(self.statistic + other.statistic, self.degrees_of_freedom + other.degrees_of_freedom)


def compare_distributions(left: Iterable[int], right: Iterable[int]) -> ChiSquare:
    """Compute the chi-square of two samples of token ids."""
    counts, others = Counter(left), Counter(right)
    num_left, num_right = counts.total(), others.total()
    if not num_left or not num_right:
        return ChiSquare(0.0, 0)
    cells: list[tuple[int, int]] = []
    rare_left = rare_right = 0
    for token_id in counts.keys() | others.keys():
        pair = counts[token_id], others[token_id]
        if sum(pair) >= _MIN_COUNT:
            cells.append(pair)
        else:
            rare_left, rare_right = rare_left + pair[0], rare_right + pair[1]
    if rare_left + rare_right:
        cells.append((rare_left, rare_right))
    weight = math.sqrt(num_right / num_left)
    statistic = sum((weight * a - b / weight) ** 2 / (a + b) for a, b in cells)
    return ChiSquare(statistic, len(cells) - 1)
