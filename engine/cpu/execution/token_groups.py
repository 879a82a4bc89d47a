"""Grouping of a step's tokens for compiled attention: adjacent tokens of one sequence, a few at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from engine.attention.base import ForwardContext
from engine.cpu.jit.layout import GROUP
from engine.cpu.multi_step.further_step import MOST_TOGETHER

Stretch = tuple[int, int, int]
"""Adjacent tokens of one sequence: first token, end, row."""
Groups = npt.NDArray[np.void]


class TokenGroups:
    """Division of steps into GROUP records."""

    def __init__(self, max_tokens: int) -> None:
        self._single = np.array([(token, 1, token, token) for token in range(max_tokens)], dtype=GROUP)

    def of(self, context: ForwardContext) -> Groups:
        """Return the groups of all tokens of a step."""
        starts = context.query_starts
        if starts[-1] == len(starts) - 1:
            return self._single[: starts[-1]]
        return _cut((start, end, row) for row, (start, end) in enumerate(itertools.pairwise(starts)))

    def of_sampled(self, context: ForwardContext) -> Groups:
        """Return the groups of the sampled tokens alone, which are in order."""
        assert context.sampled is not None
        return _cut(_stretches(context.sampled, context.query_starts))


def _cut(stretches: Iterable[Stretch]) -> Groups:
    """Cut stretches into even groups of a few tokens; their outputs are placed side by side."""
    found, place = [], 0
    for start, end, row in stretches:
        num_groups = -(-(end - start) // MOST_TOGETHER)
        size = -(-(end - start) // num_groups)
        for first in range(start, end, size):
            count = min(size, end - first)
            found.append((first, count, row, place))
            place += count
    return np.array(found, dtype=GROUP)


def _stretches(tokens: list[int], starts: list[int]) -> Iterator[Stretch]:
    """Yield the longest runs of these tokens that are adjacent in one sequence."""
    row, first = 0, 0
    for index, token in enumerate(tokens):
        while starts[row + 1] <= token:
            row += 1
        if token + 1 < starts[row + 1] and tokens[index + 1 : index + 2] == [token + 1]:
            continue
        yield tokens[first], token + 1, row
        first = index + 1
