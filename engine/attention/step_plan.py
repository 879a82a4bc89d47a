"""What one step's attention shares between layers: which rows go together, where their keys are, what is masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from engine.attention.base import AttentionSpec, ForwardContext
from engine.attention.buckets import buckets_of
from engine.attention.decoded import Decoded
from engine.attention.gathered_layout import Layout
from engine.attention.gathered_prompt import GatheredPrompt
from engine.attention.gathered_rows import Fill, GatheredPlan, Span

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
    """Additive float32 [queries, num_keys], once for each query head of a key head; None when nothing is masked, or
    exactly the causal triangle is."""
    is_causal: bool
    prompt: GatheredPrompt | None = None
    """Set where what it reads is kept for the next step."""


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
    span: Span | None = None
    """Where what it reads is kept; None: it gathers."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """How to attend in one step, for layers of one shape with one sliding window (or none)."""

    rows: list[RowPlan]
    groups: list[GroupPlan]
    decoded: Decoded | None = None
    """The rows with one token, set where the next step may hold their next ones."""
    kept: GatheredPlan | None = None
    """Set where what was gathered for rows of this step serves that one too."""
    is_settled: bool = False
    """Whether all rows are kept that could be, should the next step hold the same."""

    prompt: GatheredPrompt | None = None
    """The row with several tokens whose past is kept."""

    @property
    def has_room(self) -> bool:
        """Whether every row that is kept can get one token more."""
        return all(group.span is None or group.num_seen < group.width for group in self.groups)


class StepPlanner:
    """Plans one step; finds out at most once per row whether its blocks are consecutive."""

    def __init__(self, context: ForwardContext) -> None:
        self._context = context
        self._tables: npt.NDArray[np.int64] = context.block_tables.cpu().numpy()
        self._block_starts: dict[int, int | None] = {}

    def plan(self, spec: AttentionSpec, last: StepPlan | None = None, max_kept_slots: int = 0) -> StepPlan:
        """The plan for layers like this.

        A row that has just one token more than in the `last` step goes on with what was kept for it then; if that was
        nothing it is gathered to be kept, unless all such rows together take more than `max_kept_slots`. For the first
        token of a row it would not pay if no other came. A prompt's chunk goes on likewise from the chunk before.
        """
        plan = self._plan_decoding(spec, last, max_kept_slots)
        prompts = [row for row in plan.rows if row.slots is not None and row.num_keys <= max_kept_slots]
        prompts = [row for row in prompts if row.token_end - row.token_start > 1]
        if spec.sliding_window is not None or not prompts:
            return plan
        longest = max(prompts, key=lambda row: row.num_keys)
        prompt = self._prompt(longest).after(None if last is None else last.prompt, self._context.block_size)
        rows = [replace(row, prompt=prompt) if row is longest else row for row in plan.rows]
        return replace(plan, rows=rows, prompt=prompt)

    def _prompt(self, plan: RowPlan) -> GatheredPrompt:
        """What is kept of a row without a window once this step is done."""
        row = self._context.query_starts.index(plan.token_start)
        num_blocks = -(-plan.num_keys // self._context.block_size)
        start = plan.num_keys - (plan.token_end - plan.token_start)
        return GatheredPrompt(start, plan.num_keys, self._tables[row, :num_blocks].copy())

    def _plan_decoding(self, spec: AttentionSpec, last: StepPlan | None, max_kept_slots: int) -> StepPlan:
        """The plan, in which nothing is kept of prompts."""
        window = spec.sliding_window
        decoded = Decoded.of(self._context, self._tables) if window is None else None
        if last is None or last.decoded is None or decoded is None:
            return self._compose(spec, decoded)
        predecessors = decoded.predecessors(last.decoded, self._context.block_size)
        is_same = predecessors == list(range(len(last.decoded.rows))) and decoded.stands_like(last.decoded)
        if is_same and last.kept is not None and last.is_settled and last.has_room:
            groups = [self._grown(group) for group in last.groups if group.span is not None]
            return self._compose(spec, decoded, groups, last.kept.go_on(decoded), is_settled=True)
        return self._keep(spec, decoded, predecessors, last.kept, max_kept_slots)

    def _keep(
        self,
        spec: AttentionSpec,
        decoded: Decoded,
        predecessors: list[int | None],
        kept: GatheredPlan | None,
        max_slots: int,
    ) -> StepPlan:
        """A plan to keep the rows that go on: where they were, in the place of others, or in new ones."""
        to_gather = self._rows_to_gather(set())
        wanted = {index for index, row in enumerate(decoded.rows) if row in to_gather}
        layout = (Layout() if kept is None else kept.layout).next(
            {then: now for now, then in enumerate(predecessors) if then is not None},
            decoded.context_lens,
            [index for index in wanted if predecessors[index] is not None],
            block_size=self._context.block_size,
            max_slots=max_slots,
        )
        if layout is None:
            return self._compose(spec, decoded)
        groups, fills = self._plan_kept(layout, decoded)
        plan = GatheredPlan.of(layout, fills, spec, decoded, None if kept is None or layout.is_new else kept.state)
        return self._compose(spec, decoded, groups, plan, is_settled=wanted <= layout.rows)

    def _plan_kept(self, layout: Layout, decoded: Decoded) -> tuple[list[GroupPlan], list[Fill]]:
        """Plans of the layout's groups, and what is still to be gathered for them."""
        joined = dict(layout.joined)
        groups: list[GroupPlan] = []
        fills: list[Fill] = []
        for index, kept in enumerate(layout.groups):
            if not kept.rows:
                continue
            group = self._plan_group([decoded.rows[row] for row in kept.rows], None, kept.width)
            groups.append(replace(group, span=Span(kept.start, len(kept.rows), kept.width)))
            if (first := joined.get(index)) is not None:
                span = Span(kept.slot(first), len(kept.rows) - first, kept.width)
                fills.append(Fill(span, group.blocks.view(len(kept.rows), -1)[first:].flatten()))
        return groups, fills

    def _grown(self, group: GroupPlan) -> GroupPlan:
        """The kept group with one token more for each row; the group before is of no more use."""
        if group.mask is not None:
            lengths = self._context.context_lens
            group.mask.numpy()[range(len(group.rows)), 0, 0, [lengths[row] - 1 for row in group.rows]] = 0.0
        return replace(group, token_indices=self._token_indices(group.rows), num_seen=group.num_seen + 1)

    def _compose(
        self,
        spec: AttentionSpec,
        decoded: Decoded | None,
        kept_groups: Sequence[GroupPlan] = (),
        kept: GatheredPlan | None = None,
        *,
        is_settled: bool = False,
    ) -> StepPlan:
        """The plan with these groups, in which the other rows are gathered or attended to by themselves."""
        window = spec.sliding_window
        to_gather = self._rows_to_gather({row for group in kept_groups for row in group.rows})
        buckets = buckets_of(to_gather, self._context.context_lens)
        groups = [*kept_groups, *(self._plan_group(bucket, window) for bucket in buckets)]
        return StepPlan(self._plan_rows(groups, spec), groups, decoded, kept, is_settled)

    def _plan_rows(self, groups: list[GroupPlan], spec: AttentionSpec) -> list[RowPlan]:
        """Plans of the rows that are in none of the groups."""
        starts = self._context.query_starts
        gathered = {row for group in groups for row in group.rows}
        rows = []
        for row, num_context in enumerate(self._context.context_lens):
            num_queries = starts[row + 1] - starts[row]
            if num_queries and row not in gathered:
                rows.append(self._plan_row(row, num_queries, num_context, spec))
        return rows

    def _rows_to_gather(self, besides: set[int]) -> set[int]:
        """Decode rows that share calls: scattered ones, and short ones when there are several `besides` these."""
        starts, lengths = self._context.query_starts, self._context.context_lens
        decoding = [row for row in range(len(lengths)) if starts[row + 1] - starts[row] == 1 and row not in besides]
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

    def _plan_row(self, row: int, num_queries: int, num_context: int, spec: AttentionSpec) -> RowPlan:
        sliding_window = spec.sliding_window
        first_query = num_context - num_queries
        key_start = 0 if sliding_window is None else max(0, first_query - sliding_window + 1)
        num_keys = num_context - key_start
        is_windowed = sliding_window is not None and num_keys > sliding_window
        is_causal = num_queries > 1 and key_start == first_query and not is_windowed
        mask = None
        if num_queries > 1 and not is_causal:
            mask = _mask(num_queries, num_keys, sliding_window, self._context.positions.device)
            mask = mask.repeat(spec.num_heads // spec.num_kv_heads, 1)
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

    def _plan_group(self, rows: list[int], sliding_window: int | None, width: int | None = None) -> GroupPlan:
        """`width`: slots that each row gets, in whole blocks, without a window; None: as many as it takes."""
        context, size = self._context, self._context.block_size
        device = context.block_tables.device
        ends = np.array([context.context_lens[row] for row in rows])[:, None]
        begins = np.zeros_like(ends) if sliding_window is None else np.maximum(ends - sliding_window, 0)
        first_blocks, last_blocks = begins // size, (ends - 1) // size
        num_blocks = width // size if width else int((last_blocks - first_blocks).max()) + 1
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
        return GroupPlan(
            rows=rows,
            token_indices=self._token_indices(rows),
            blocks=torch.from_numpy(blocks.ravel()).to(device),
            width=num_blocks * size,
            num_seen=num_seen,
            mask=mask,
        )

    def _token_indices(self, rows: list[int]) -> torch.Tensor | None:
        """The tokens of decode rows; None: all of the step in order."""
        starts = self._context.query_starts
        tokens = [starts[row] for row in rows]
        is_everything = tokens == list(range(starts[-1]))
        return None if is_everything else torch.tensor(tokens, device=self._context.block_tables.device)


def _mask(num_queries: int, num_keys: int, sliding_window: int | None, device: torch.device) -> torch.Tensor:
    """Additive mask of the last `num_queries` of `num_keys` positions."""
    keys = torch.arange(num_keys, device=device)
    queries = torch.arange(num_keys - num_queries, num_keys, device=device).unsqueeze(1)
    is_hidden = keys > queries
    if sliding_window is not None:
        is_hidden |= keys <= queries - sliding_window
    return torch.zeros(num_queries, num_keys, device=device).masked_fill_(is_hidden, float("-inf"))
