"""What one step's attention shares between layers: which rows go together, where their keys are, what is masked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from engine.attention.base import ForwardContext

_MAX_PADDING_RATIO = 1.5
"""Decode rows share a gather while the longest is at most this many times the shortest (or both are short)."""
_SHORT_CONTEXT = 64
_MAX_GROUP_SLOTS = 4096
"""What one group gathers at most, unless a single row is longer: little enough to stay in the processor's cache."""
_MIN_VIEW_LENGTH = 768
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
    """Decode rows gathered, block by block, and attended to together."""

    rows: list[int]
    token_indices: torch.Tensor | None
    """int64 [rows]; None: they are all the step's tokens in order."""
    blocks: torch.Tensor
    """int64 [rows * blocks of a row]; behind its last block a row repeats it."""
    width: int
    """Slots gathered for each row."""
    mask: torch.Tensor | None
    """Additive float32 [rows, 1, 1, width]; None when every slot counts."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """How to attend in one step, for layers with one sliding window (or none)."""

    rows: list[RowPlan]
    groups: list[GroupPlan]
    continuation: Continuation | None = None
    """What the next step needs to go on with this plan; None where it has to plan afresh."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where a plan of one group of all rows stood: one more token for each row changes nothing but the mask."""

    context_lens: list[int]
    tables: npt.NDArray[np.int64]
    """[rows, blocks of the group]; a copy, as the next step's tables take the place of this one's."""


class StepPlanner:
    """Plans one step; finds out at most once per row whether its blocks are consecutive."""

    def __init__(self, context: ForwardContext) -> None:
        self._context = context
        self._tables: npt.NDArray[np.int64] = context.block_tables.cpu().numpy()
        self._block_starts: dict[int, int | None] = {}

    def plan(self, sliding_window: int | None) -> StepPlan:
        """The plan for layers with this window."""
        context = self._context
        rows: list[RowPlan] = []
        gathered = self._rows_to_gather()
        for row, num_context in enumerate(context.context_lens):
            num_queries = context.query_starts[row + 1] - context.query_starts[row]
            if num_queries and row not in gathered:
                rows.append(self._plan_row(row, num_queries, num_context, sliding_window))
        groups = [self._plan_group(group, sliding_window) for group in self._bucket(gathered)]
        return StepPlan(rows, groups, self._continuation(rows, groups, sliding_window))

    def continue_plan(self, last: StepPlan, sliding_window: int | None) -> StepPlan | None:
        """The last step's plan where each row has just one more token in a block that it had; else None."""
        before, context = last.continuation, self._context
        if before is None or sliding_window is not None:
            return None
        num_rows = len(before.context_lens)
        if len(context.context_lens) != num_rows or context.query_starts != list(range(num_rows + 1)):
            return None
        if any(
            now != then + 1 or then % context.block_size == 0
            for now, then in zip(context.context_lens, before.context_lens, strict=True)
        ):
            return None
        tables = self._tables[:, : before.tables.shape[1]]
        if not np.array_equal(tables, before.tables):
            return None
        (group,) = last.groups
        assert group.mask is not None, "the last blocks were not full"
        group.mask.numpy()[range(num_rows), 0, 0, [before.context_lens[row] for row in group.rows]] = 0.0
        return StepPlan([], last.groups, Continuation(context.context_lens, before.tables))

    def _continuation(
        self, rows: list[RowPlan], groups: list[GroupPlan], sliding_window: int | None
    ) -> Continuation | None:
        if rows or len(groups) != 1 or sliding_window is not None or self._context.block_tables.device.type != "cpu":
            return None
        num_blocks = groups[0].width // self._context.block_size
        return Continuation(self._context.context_lens, self._tables[:, :num_blocks].copy())

    def _rows_to_gather(self) -> set[int]:
        """Decode rows that share calls: scattered ones, and short ones when there are several."""
        starts, lengths = self._context.query_starts, self._context.context_lens
        decoding = [row for row in range(len(lengths)) if starts[row + 1] - starts[row] == 1]
        short = {row for row in decoding if lengths[row] < _MIN_VIEW_LENGTH}
        together = short if len(short) > 1 else set()
        scattered = {row for row in decoding if row not in together and self._consecutive_start(row) is None}
        return scattered | short if len(scattered | short) > 1 else scattered

    def _consecutive_start(self, row: int) -> int | None:
        """The pool index of a row's first key when its blocks follow one another, else None."""
        if row not in self._block_starts:
            context = self._context
            num_blocks = -(-context.context_lens[row] // context.block_size)
            blocks = self._tables[row, :num_blocks].tolist()
            is_consecutive = bool(blocks) and blocks == list(range(blocks[0], blocks[0] + num_blocks))
            self._block_starts[row] = blocks[0] * context.block_size if is_consecutive else None
        return self._block_starts[row]

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
        block_start = self._consecutive_start(row)
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
        return [sorted(bucket) for bucket in buckets]

    def _plan_group(self, rows: list[int], sliding_window: int | None) -> GroupPlan:
        context, size = self._context, self._context.block_size
        device = context.block_tables.device
        ends = np.array([context.context_lens[row] for row in rows])[:, None]
        begins = np.zeros_like(ends) if sliding_window is None else np.maximum(ends - sliding_window, 0)
        first_blocks, last_blocks = begins // size, (ends - 1) // size
        num_blocks = int((last_blocks - first_blocks).max()) + 1
        # Behind its own last block a row repeats it: another's numbers, which need not be finite, are never read.
        columns = np.minimum(first_blocks + np.arange(num_blocks), last_blocks)
        blocks = self._tables[np.array(rows)[:, None], columns]
        positions = first_blocks * size + np.arange(num_blocks * size)
        is_seen = (positions >= begins) & (positions < ends)
        mask = None
        if not is_seen.all():
            mask = torch.from_numpy(np.where(is_seen, np.float32(0), np.float32("-inf"))).to(device)
            mask = mask.view(len(rows), 1, 1, -1)
        starts = [context.query_starts[row] for row in rows]
        is_everything = starts == list(range(context.query_starts[-1]))
        return GroupPlan(
            rows=rows,
            token_indices=None if is_everything else torch.tensor(starts, device=device),
            blocks=torch.from_numpy(blocks.ravel()).to(device),
            width=num_blocks * size,
            mask=mask,
        )


def _mask(num_queries: int, num_keys: int, sliding_window: int | None, device: torch.device) -> torch.Tensor:
    """Additive mask of the last `num_queries` of `num_keys` positions."""
    keys = torch.arange(num_keys, device=device)
    queries = torch.arange(num_keys - num_queries, num_keys, device=device).unsqueeze(1)
    is_hidden = keys > queries
    if sliding_window is not None:
        is_hidden |= keys <= queries - sliding_window
    return torch.zeros(num_queries, num_keys, device=device).masked_fill_(is_hidden, float("-inf"))
