"""What one step's attention shares between layers: which rows go together, where their keys are, what is masked."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.attention.base import ForwardContext

_MAX_PADDING_RATIO = 1.5
"""Decode rows share a gather while the longest is at most this many times the shortest (or both are short)."""
_SHORT_CONTEXT = 64
_MAX_GROUP_SLOTS = 2048
"""What one group gathers at most, unless a single row is longer: little enough to stay in the processor's cache."""
_MIN_VIEW_LENGTH = 256
"""From here on a call of its own, over a view, costs a row less than the copy that a shared call needs."""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """A row attended to by itself."""

    token_start: int
    token_end: int
    key_start: int
    """Index into the pool when `slots` is None."""
    num_keys: int
    slots: torch.Tensor | None
    """int64 [num_keys]; None when the keys lie in the pool one after the other."""
    mask: torch.Tensor | None
    """Additive float32 [queries, num_keys]; None when nothing is masked, or exactly the causal triangle is."""
    is_causal: bool


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Decode rows gathered and attended to together."""

    token_indices: torch.Tensor
    """int64 [rows]."""
    slots: torch.Tensor
    """int64 [rows * width]."""
    width: int
    mask: torch.Tensor | None
    """Additive float32 [rows, 1, 1, width]; None when all rows have the same length."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """How to attend in one step, for layers with one sliding window (or none)."""

    rows: list[RowPlan]
    groups: list[GroupPlan]


class StepPlanner:
    """Plans one step; finds out at most once per row whether its blocks are consecutive."""

    def __init__(self, context: ForwardContext) -> None:
        self._context = context
        self._block_starts = [self._consecutive_start(row) for row in range(len(context.context_lens))]

    def plan(self, sliding_window: int | None) -> StepPlan:
        """The plan for layers with this window."""
        context = self._context
        rows: list[RowPlan] = []
        gathered = self._rows_to_gather()
        for row, num_context in enumerate(context.context_lens):
            num_queries = context.query_starts[row + 1] - context.query_starts[row]
            if num_queries and row not in gathered:
                rows.append(self._plan_row(row, num_queries, num_context, sliding_window))
        return StepPlan(rows, [self._plan_group(group, sliding_window) for group in self._bucket(gathered)])

    def _rows_to_gather(self) -> set[int]:
        """Decode rows that share calls: scattered ones, and short ones when there are several."""
        starts, lengths = self._context.query_starts, self._context.context_lens
        decoding = [row for row in range(len(lengths)) if starts[row + 1] - starts[row] == 1]
        short = {row for row in decoding if lengths[row] < _MIN_VIEW_LENGTH}
        scattered = {row for row in decoding if self._block_starts[row] is None}
        return scattered | short if len(scattered | short) > 1 else scattered

    def _consecutive_start(self, row: int) -> int | None:
        """The pool index of a row's first key when its blocks follow one another, else None."""
        context = self._context
        num_blocks = -(-context.context_lens[row] // context.block_size)
        blocks = context.block_tables[row, :num_blocks].tolist()
        if not blocks or blocks[-1] - blocks[0] != num_blocks - 1:
            return None
        is_consecutive = blocks == list(range(blocks[0], blocks[0] + num_blocks))
        return blocks[0] * context.block_size if is_consecutive else None

    def _slots(self, row: int, start: int, end: int) -> torch.Tensor:
        context = self._context
        positions = torch.arange(start, end, device=context.block_tables.device)
        blocks = context.block_tables[row].index_select(0, positions // context.block_size)
        return blocks * context.block_size + positions % context.block_size

    def _plan_row(self, row: int, num_queries: int, num_context: int, sliding_window: int | None) -> RowPlan:
        first_query = num_context - num_queries
        key_start = 0 if sliding_window is None else max(0, first_query - sliding_window + 1)
        num_keys = num_context - key_start
        is_windowed = sliding_window is not None and num_keys > sliding_window
        is_causal = num_queries > 1 and key_start == first_query and not is_windowed
        mask = None
        if num_queries > 1 and not is_causal:
            mask = _mask(num_queries, num_keys, sliding_window, self._context.positions.device)
        block_start = self._block_starts[row]
        return RowPlan(
            token_start=self._context.query_starts[row],
            token_end=self._context.query_starts[row + 1],
            key_start=0 if block_start is None else block_start + key_start,
            num_keys=num_keys,
            slots=self._slots(row, key_start, num_context) if block_start is None else None,
            mask=mask,
            is_causal=is_causal,
        )

    def _bucket(self, rows: set[int]) -> list[list[int]]:
        """Rows sorted by length and cut where padding would cost more than a call of its own, or a group is full."""
        lengths = self._context.context_lens
        buckets: list[list[int]] = []
        for row in sorted(rows, key=lambda row: lengths[row]):
            limit = max(_SHORT_CONTEXT, lengths[buckets[-1][0]] * _MAX_PADDING_RATIO) if buckets else 0
            if lengths[row] <= limit and lengths[row] * (len(buckets[-1]) + 1) <= _MAX_GROUP_SLOTS:
                buckets[-1].append(row)
            else:
                buckets.append([row])
        return buckets

    def _plan_group(self, rows: list[int], sliding_window: int | None) -> GroupPlan:
        context = self._context
        device = context.block_tables.device
        lengths = [context.context_lens[row] for row in rows]
        widths = lengths if sliding_window is None else [min(length, sliding_window) for length in lengths]
        width = max(widths)
        row_lengths = torch.tensor(lengths, device=device).unsqueeze(1)
        row_widths = torch.tensor(widths, device=device).unsqueeze(1)
        columns = torch.arange(width, device=device)
        # Columns past a row's own width repeat its last key; the mask drops them.
        positions = row_lengths - row_widths + torch.minimum(columns, row_widths - 1)
        tables = context.block_tables.index_select(0, torch.tensor(rows, device=device))
        slots = tables.gather(1, positions // context.block_size) * context.block_size + positions % context.block_size
        mask = None
        if min(widths) < width:
            mask = torch.zeros(len(rows), width, device=device).masked_fill_(columns >= row_widths, float("-inf"))
        return GroupPlan(
            token_indices=torch.tensor([context.query_starts[row] for row in rows], device=device),
            slots=slots.flatten(),
            width=width,
            mask=None if mask is None else mask.view(len(rows), 1, 1, width),
        )


def _mask(num_queries: int, num_keys: int, sliding_window: int | None, device: torch.device) -> torch.Tensor:
    """Additive mask of the last `num_queries` of `num_keys` positions."""
    keys = torch.arange(num_keys, device=device)
    queries = torch.arange(num_keys - num_queries, num_keys, device=device).unsqueeze(1)
    is_hidden = keys > queries
    if sliding_window is not None:
        is_hidden |= keys <= queries - sliding_window
    return torch.zeros(num_queries, num_keys, device=device).masked_fill_(is_hidden, float("-inf"))
