"""What one step's attention shares between layers: which rows go together, where their keys are, what is masked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from engine.attention.base import AttentionSpec, ForwardContext
from engine.attention.kept_rows import HEADROOM_SLOTS, Decoded, KeptPlan, Span

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
    num_seen: int
    """Leading slots of each row that are attended to."""
    mask: torch.Tensor | None
    """Additive float32 [rows, 1, 1, width]; None when every slot that is attended to counts."""
    start: int = 0
    """Slots of the groups before it, where what they gather is kept."""

    @property
    def span(self) -> Span:
        """Its part of what is kept."""
        return Span(self.start, self.rows, self.width)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """How to attend in one step, for layers of one shape with one sliding window (or none)."""

    rows: list[RowPlan]
    groups: list[GroupPlan]
    decoded: Decoded | None = None
    """Set where the next step may be these rows' next tokens and nothing else."""
    kept: KeptPlan | None = None
    """Set where what the groups gather serves that step too."""


class StepPlanner:
    """Plans one step; finds out at most once per row whether its blocks are consecutive."""

    def __init__(self, context: ForwardContext) -> None:
        self._context = context
        self._tables: npt.NDArray[np.int64] = context.block_tables.cpu().numpy()
        self._block_starts: dict[int, int | None] = {}

    def plan(self, spec: AttentionSpec, last: StepPlan | None = None, max_kept_slots: int = 0) -> StepPlan:
        """The plan for layers like this.

        Where each row has just one token more than in the `last` step, groups go on with what they kept; if that was
        nothing they are gathered to be kept, unless they take more than `max_kept_slots`. After any other step keeping
        would not pay.
        """
        window = spec.sliding_window
        decoded = Decoded.of(self._context, self._tables) if window is None else None
        before = None if last is None else last.decoded
        if last and decoded and before and decoded.follows(before, self._context.block_size):
            return self._next(last, decoded) or self._keep(spec, decoded, max_kept_slots)
        groups = [self._plan_group(bucket, window) for bucket in self._bucket(self._rows_to_gather())]
        return StepPlan(self._plan_rows(groups, window), groups, decoded)

    def _next(self, last: StepPlan, decoded: Decoded) -> StepPlan | None:
        """The last plan with one token more for each row; None where nothing was kept or there is no more room."""
        if last.kept is None or any(group.num_seen == group.width for group in last.groups):
            return None
        groups = [_grown(group, decoded) for group in last.groups]
        return StepPlan(self._plan_rows(groups, None), groups, decoded, last.kept.go_on(decoded))

    def _keep(self, spec: AttentionSpec, decoded: Decoded, max_slots: int) -> StepPlan:
        """A plan whose groups have room for tokens to come, unless that takes too much."""
        groups: list[GroupPlan] = []
        start = 0
        buckets = self._bucket(self._rows_to_gather())
        for rows in buckets:
            group = self._plan_group(rows, None, HEADROOM_SLOTS)
            groups.append(replace(group, start=start))
            start += len(rows) * group.width
        if not 0 < start <= max_slots:
            groups = [self._plan_group(rows, None) for rows in buckets]
            return StepPlan(self._plan_rows(groups, None), groups, decoded)
        kept = KeptPlan.begin(decoded, [group.span for group in groups], spec)
        return StepPlan(self._plan_rows(groups, None), groups, decoded, kept)

    def _plan_rows(self, groups: list[GroupPlan], sliding_window: int | None) -> list[RowPlan]:
        """Plans of the rows that are in none of the groups."""
        starts = self._context.query_starts
        gathered = {row for group in groups for row in group.rows}
        rows = []
        for row, num_context in enumerate(self._context.context_lens):
            num_queries = starts[row + 1] - starts[row]
            if num_queries and row not in gathered:
                rows.append(self._plan_row(row, num_queries, num_context, sliding_window))
        return rows

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

    def _plan_group(self, rows: list[int], sliding_window: int | None, headroom: int = 0) -> GroupPlan:
        """`headroom`: slots that each row gets for tokens to come; only without a window."""
        context, size = self._context, self._context.block_size
        device = context.block_tables.device
        ends = np.array([context.context_lens[row] for row in rows])[:, None]
        begins = np.zeros_like(ends) if sliding_window is None else np.maximum(ends - sliding_window, 0)
        first_blocks, last_blocks = begins // size, (ends - 1) // size
        num_blocks = int((last_blocks - first_blocks).max()) + 1 + -(-headroom // size)
        # Behind its own last block a row repeats it: another's numbers, which need not be finite, are never read.
        columns = np.minimum(first_blocks + np.arange(num_blocks), last_blocks)
        blocks = self._tables[np.array(rows)[:, None], columns]
        positions = first_blocks * size + np.arange(num_blocks * size)
        is_seen = (positions >= begins) & (positions < ends)
        num_seen = int((ends - first_blocks * size).max())
        mask = None
        if not is_seen[:, :num_seen].all():
            mask = torch.from_numpy(np.where(is_seen, np.float32(0), np.float32("-inf"))).to(device)
            mask = mask.view(len(rows), 1, 1, -1)
        starts = [context.query_starts[row] for row in rows]
        is_everything = starts == list(range(context.query_starts[-1]))
        return GroupPlan(
            rows=rows,
            token_indices=None if is_everything else torch.tensor(starts, device=device),
            blocks=torch.from_numpy(blocks.ravel()).to(device),
            width=num_blocks * size,
            num_seen=num_seen,
            mask=mask,
        )


def _grown(group: GroupPlan, decoded: Decoded) -> GroupPlan:
    """The group with one token more for each row; the group before is of no more use."""
    if group.mask is not None:
        positions = [decoded.context_lens[row] - 1 for row in group.rows]
        group.mask.numpy()[range(len(positions)), 0, 0, positions] = 0.0
    return replace(group, num_seen=group.num_seen + 1)


def _mask(num_queries: int, num_keys: int, sliding_window: int | None, device: torch.device) -> torch.Tensor:
    """Additive mask of the last `num_queries` of `num_keys` positions."""
    keys = torch.arange(num_keys, device=device)
    queries = torch.arange(num_keys - num_queries, num_keys, device=device).unsqueeze(1)
    is_hidden = keys > queries
    if sliding_window is not None:
        is_hidden |= keys <= queries - sliding_window
    return torch.zeros(num_queries, num_keys, device=device).masked_fill_(is_hidden, float("-inf"))
