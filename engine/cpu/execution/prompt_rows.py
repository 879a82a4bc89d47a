"""Division of a step for compiled code: tokens computed together, and prompts apart from rows of few tokens."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from engine.attention.base import ForwardContext


@dataclass(frozen=True, slots=True)
class Part:
    """Subset of a step's sequences, as a step of its own."""

    context: ForwardContext
    rows: list[int]
    """Indices of the part's sequences in the step."""
    tokens: torch.Tensor
    """int64: indices of the part's tokens in the step."""
    places: torch.Tensor
    """int64: indices of the part's sampled tokens among those of the step; of all tokens if none are named."""
    has_prompts: bool


def has_prompts(context: ForwardContext, few: int) -> bool:
    """Return whether any sequence of a step has more than `few` tokens."""
    starts = context.query_starts
    return any(end - start > few for start, end in itertools.pairwise(starts))


def cut_evenly(context: ForwardContext, most: int) -> Iterator[tuple[int, int, ForwardContext]]:
    """Yield a step in even parts of up to `most` tokens, in order: first token, end, and the part as its own step."""
    starts = np.array(context.query_starts)
    num_tokens = int(starts[-1])
    size = -(-num_tokens // -(-num_tokens // most))
    for first in range(0, num_tokens, size):
        end = min(first + size, num_tokens)
        rows = np.flatnonzero((starts[:-1] < end) & (starts[1:] > first))
        # Tokens of a sequence after the part are not computed yet.
        missing = np.maximum(starts[rows + 1] - end, 0)
        part = replace(
            context,
            positions=context.positions[first:end],
            slot_mapping=context.slot_mapping[first:end],
            query_starts=[0, *(np.minimum(starts[rows + 1], end) - first).tolist()],
            context_lens=(np.array(context.context_lens)[rows] - missing).tolist(),
            block_tables=context.block_tables[rows[0] : rows[-1] + 1],
            window_slots=None if context.window_slots is None else context.window_slots[first:end],
            window_tables=None if context.window_tables is None else context.window_tables[rows[0] : rows[-1] + 1],
            sampled=None if context.sampled is None else [at - first for at in context.sampled if first <= at < end],
        )
        yield first, end, part


def split_rows(context: ForwardContext, few: int, max_tokens: int) -> Iterator[Part]:
    """Yield a step's sequences of up to `few` tokens, in parts of up to `max_tokens`, and the others as one part."""
    lengths = np.diff(context.query_starts)
    rows: list[int] = []
    num_tokens = 0
    for row in np.flatnonzero(lengths <= few):
        if rows and num_tokens + lengths[row] > max_tokens:
            yield _part(context, rows, has_prompts=False)
            rows, num_tokens = [], 0
        rows.append(int(row))
        num_tokens += int(lengths[row])
    if rows:
        yield _part(context, rows, has_prompts=False)
    prompts = np.flatnonzero(lengths > few).tolist()
    if prompts:
        yield _part(context, prompts, has_prompts=True)


def _part(context: ForwardContext, rows: list[int], *, has_prompts: bool) -> Part:
    starts = context.query_starts
    tokens = np.concatenate([np.arange(starts[row], starts[row + 1]) for row in rows])
    ends = np.cumsum([starts[row + 1] - starts[row] for row in rows])
    places, sampled = tokens, None
    if context.sampled is not None:
        are_sampled = np.isin(tokens, context.sampled)
        places, sampled = np.searchsorted(context.sampled, tokens[are_sampled]), np.flatnonzero(are_sampled).tolist()
    indices, of_rows = torch.from_numpy(tokens), torch.tensor(rows)
    slots, tables = context.window_slots, context.window_tables
    return Part(
        replace(
            context,
            positions=context.positions.index_select(0, indices),
            slot_mapping=context.slot_mapping.index_select(0, indices),
            query_starts=[0, *ends.tolist()],
            context_lens=[context.context_lens[row] for row in rows],
            block_tables=context.block_tables.index_select(0, of_rows),
            window_slots=None if slots is None else slots.index_select(0, indices),
            window_tables=None if tables is None else tables.index_select(0, of_rows),
            sampled=sampled,
        ),
        rows,
        indices,
        torch.from_numpy(places),
        has_prompts,
    )
