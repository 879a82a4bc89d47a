"""Rows of a step by adapter: which tokens use which adapter, and a step of some of its sequences alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from engine.attention.base import ForwardContext

Rows = slice | torch.Tensor
"""Adjacent rows, or int64 indices of rows."""


@dataclass(frozen=True, slots=True)
class AdapterGroup:
    """Rows of a step that use one adapter."""

    adapter: int
    """Index of the adapter in the stacked weights."""
    rows: Rows
    is_whole: bool
    """True if the rows are all rows of the step."""


def group_rows(query_starts: Sequence[int], adapters: Sequence[int | None], device: torch.device) -> list[AdapterGroup]:
    """Return the rows of each adapter in use; sequence i has the rows query_starts[i]:query_starts[i + 1]."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for (start, end), adapter in zip(pairwise(query_starts), adapters, strict=True):
        if adapter is None or start == end:
            continue
        found = spans.setdefault(adapter, [])
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    num_rows = query_starts[-1]
    return [AdapterGroup(adapter, _rows(found, device), found == [(0, num_rows)]) for adapter, found in spans.items()]


def _rows(spans: list[tuple[int, int]], device: torch.device) -> Rows:
    if len(spans) == 1:
        return slice(*spans[0])
    indices = torch.tensor([row for start, end in spans for row in range(start, end)])
    return indices if device.type == "cpu" else indices.pin_memory().to(device, non_blocking=True)


@dataclass(frozen=True, slots=True)
class StepPart:
    """Some sequences of a step, as a step of their own."""

    context: ForwardContext
    tokens: torch.Tensor
    """int64: indices of the part's tokens in the step."""
    places: torch.Tensor
    """int64: indices of the part's sampled tokens among those of the step; of all tokens if none are named."""


def part_of(context: ForwardContext, seqs: Sequence[int]) -> StepPart:
    """Return the part of a step on a CPU that has these sequences, in ascending order."""
    starts, adapters = context.query_starts, context.adapters
    tokens = [token for seq in seqs for token in range(starts[seq], starts[seq + 1])]
    query_starts = [0]
    for seq in seqs:
        query_starts.append(query_starts[-1] + starts[seq + 1] - starts[seq])
    places, sampled = tokens, None
    if context.sampled is not None:
        place_of = {token: place for place, token in enumerate(context.sampled)}
        sampled = [index for index, token in enumerate(tokens) if token in place_of]
        places = [place_of[tokens[index]] for index in sampled]
    indices, rows = torch.tensor(tokens, dtype=torch.int64), torch.tensor(seqs, dtype=torch.int64)
    slots, tables = context.window_slots, context.window_tables
    own = None if adapters is None else [adapters[seq] for seq in seqs]
    return StepPart(
        replace(
            context,
            positions=context.positions.index_select(0, indices),
            slot_mapping=context.slot_mapping.index_select(0, indices),
            query_starts=query_starts,
            context_lens=[context.context_lens[seq] for seq in seqs],
            block_tables=context.block_tables.index_select(0, rows),
            window_slots=None if slots is None else slots.index_select(0, indices),
            window_tables=None if tables is None else tables.index_select(0, rows),
            sampled=sampled,
            adapters=None if own is None or all(adapter is None for adapter in own) else own,
        ),
        indices,
        torch.tensor(places, dtype=torch.int64),
    )
