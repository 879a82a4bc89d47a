"""A step's tokens as compiled attention takes them: neighbours of one row, a few at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import torch

from engine.attention.base import ForwardContext
from engine.cpu.multi_step.further_step import MOST_TOGETHER

Stretch = tuple[int, int, int]
"""Of neighbouring tokens of one row: the first one, the end, the row."""


class TokenGroups:
    """Cuts steps into groups, int64 [groups, 4] as `engine.cpu.attention.attention.GROUP_FIELDS` says."""

    def __init__(self, max_tokens: int) -> None:
        each = torch.arange(max_tokens)
        self._single = torch.stack([each, torch.ones_like(each), each, each], 1)

    def of(self, context: ForwardContext) -> torch.Tensor:
        """Of all tokens of a step."""
        starts = context.query_starts
        if starts[-1] == len(starts) - 1:
            return self._single[: starts[-1]]
        return _cut((start, end, row) for row, (start, end) in enumerate(itertools.pairwise(starts)))

    def of_sampled(self, context: ForwardContext) -> torch.Tensor:
        """Of those alone that are sampled, which are told in their order."""
        assert context.sampled is not None
        return _cut(_stretches(context.sampled, context.query_starts))


def _cut(stretches: Iterable[Stretch]) -> torch.Tensor:
    """Even groups of a few; what they find goes side by side."""
    found, place = [], 0
    for start, end, row in stretches:
        num_groups = -(-(end - start) // MOST_TOGETHER)
        size = -(-(end - start) // num_groups)
        for first in range(start, end, size):
            count = min(size, end - first)
            found.append((first, count, row, place))
            place += count
    return torch.tensor(found, dtype=torch.int64).view(-1, 4)


def _stretches(tokens: list[int], starts: list[int]) -> Iterator[Stretch]:
    """The longest ones of these tokens that follow one another in one row."""
    row, first = 0, 0
    for index, token in enumerate(tokens):
        while starts[row + 1] <= token:
            row += 1
        if token + 1 < starts[row + 1] and tokens[index + 1 : index + 2] == [token + 1]:
            continue
        yield tokens[first], token + 1, row
        first = index + 1
