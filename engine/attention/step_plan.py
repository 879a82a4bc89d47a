"""Attention plan of one step, shared by layers: grouping of sequences, places of their keys, and masks."""

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
"""Context length from which an own call over a view costs less than the copy for a shared call."""


@dataclass(frozen=True, slots=True)
class SequencePlan:
    """Plan of a sequence that is attended to alone."""

    token_start: int
    token_end: int
    key_start: int
    """First key's index in the pool; used if `slots` is None."""
    num_keys: int
    slots: torch.Tensor | None
    """int64 [num_keys]; None if the keys are contiguous in the pool."""
    mask: torch.Tensor | None
    """Additive float32 [heads per KV head * queries, num_keys]; None without a mask or with an exactly causal one."""
    is_causal: bool
    prompt: GatheredPrompt | None = None
    """State to keep for the next step; None: nothing is retained."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Plan of decoding sequences that are gathered block by block and attended to together."""

    sequences: list[int]
    token_indices: torch.Tensor | None
    """int64 [num_seqs]; None: all the step's tokens in order."""
    blocks: torch.Tensor
    """int64 [num_seqs * blocks of a sequence]; a shorter sequence repeats its last block."""
    width: int
    """Number of slots gathered for each sequence."""
    num_seen: int
    """Number of leading slots of each sequence that are attended to."""
    mask: torch.Tensor | None
    """Additive float32 [num_seqs, 1, 1, width]; None if all attended slots are valid."""
    span: Span | None = None
    """Place of the retained keys and values; None: they are gathered."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Plan of one step for layers of one shape with one sliding window (or none)."""

    sequences: list[SequencePlan]
    groups: list[GroupPlan]
    decoded: Decoded | None = None
    """State of the sequences with one token, for the match with the next step."""
    retained: GatheredPlan | None = None
    """Plan of the memory that is retained for the next step; None: nothing is retained."""
    is_settled: bool = False
    """True if all sequences that could be retained are retained, provided the next step has the same ones."""

    prompt: GatheredPrompt | None = None
    """State of the sequence with several tokens whose past is retained."""

    @property
    def has_room(self) -> bool:
        """True if every retained sequence has room for one token more."""
        return all(group.span is None or group.num_seen < group.width for group in self.groups)


class StepPlanner:
    """Planner of one step; it checks at most once per sequence whether its blocks are consecutive."""

    def __init__(self, context: ForwardContext) -> None:
        self._context = context
        self._tables: npt.NDArray[np.int64] = context.block_tables.cpu().numpy()
        self._block_starts: dict[int, int | None] = {}

    def plan(self, spec: AttentionSpec, last: StepPlan | None = None, max_retained_slots: int = 0) -> StepPlan:
        """Return the plan for layers of one shape.

        A sequence with exactly one token more than in the last step reuses the memory retained for it. Without such
        memory, it is gathered and stays, unless all such sequences exceed `max_retained_slots`. A sequence's first
        decode step keeps nothing, as it may be the only one. A prompt's chunk reuses the memory of the chunk before in
        the same way.

        Args:
            spec: Shape of the attention.
            last: Plan of the last step for these layers.
            max_retained_slots: Limit of the slots that are retained.
        """
        plan = self._plan_decoding(spec, last, max_retained_slots)
        prompts = [seq for seq in plan.sequences if seq.slots is not None and seq.num_keys <= max_retained_slots]
        prompts = [seq for seq in prompts if seq.token_end - seq.token_start > 1]
        if spec.sliding_window is not None or not prompts:
            return plan
        longest = max(prompts, key=lambda seq: seq.num_keys)
        prompt = self._prompt(longest).after(None if last is None else last.prompt, self._context.block_size)
        sequences = [replace(seq, prompt=prompt) if seq is longest else seq for seq in plan.sequences]
        return replace(plan, sequences=sequences, prompt=prompt)

    def _prompt(self, plan: SequencePlan) -> GatheredPrompt:
        """Return the state to keep of a sequence without a window after this step."""
        seq = self._context.query_starts.index(plan.token_start)
        num_blocks = -(-plan.num_keys // self._context.block_size)
        start = plan.num_keys - (plan.token_end - plan.token_start)
        return GatheredPrompt(start, plan.num_keys, self._tables[seq, :num_blocks].copy())

    def _plan_decoding(self, spec: AttentionSpec, last: StepPlan | None, max_retained_slots: int) -> StepPlan:
        """Return the plan for decoding; it keeps nothing of prompts."""
        window = spec.sliding_window
        decoded = Decoded.of(self._context, self._tables) if window is None else None
        if last is None or last.decoded is None or decoded is None:
            return self._compose(spec, decoded)
        predecessors = decoded.predecessors(last.decoded, self._context.block_size)
        is_same = predecessors == list(range(len(last.decoded.sequences))) and decoded.stands_like(last.decoded)
        if is_same and last.retained is not None and last.is_settled and last.has_room:
            groups = [self._grown(group) for group in last.groups if group.span is not None]
            return self._compose(spec, decoded, groups, last.retained.advance(decoded), is_settled=True)
        return self._keep(spec, decoded, predecessors, last.retained, max_retained_slots)

    def _keep(
        self,
        spec: AttentionSpec,
        decoded: Decoded,
        predecessors: list[int | None],
        retained: GatheredPlan | None,
        max_slots: int,
    ) -> StepPlan:
        """Return a plan that keeps the continuing sequences in their places, in others' places or in new ones."""
        to_gather = self._sequences_to_gather(set())
        wanted = {index for index, seq in enumerate(decoded.sequences) if seq in to_gather}
        layout = (Layout() if retained is None else retained.layout).next(
            {then: now for now, then in enumerate(predecessors) if then is not None},
            decoded.context_lens,
            [index for index in wanted if predecessors[index] is not None],
            block_size=self._context.block_size,
            max_slots=max_slots,
        )
        if layout is None:
            return self._compose(spec, decoded)
        groups, fills = self._plan_retained(layout, decoded)
        plan = GatheredPlan.of(
            layout, fills, spec, decoded, None if retained is None or layout.is_new else retained.state
        )
        return self._compose(spec, decoded, groups, plan, is_settled=wanted <= layout.sequences)

    def _plan_retained(self, layout: Layout, decoded: Decoded) -> tuple[list[GroupPlan], list[Fill]]:
        """Return the plans of the layout's groups, and the sequences still to be gathered for them."""
        joined = dict(layout.joined)
        groups: list[GroupPlan] = []
        fills: list[Fill] = []
        for index, retained in enumerate(layout.groups):
            if not retained.sequences:
                continue
            group = self._plan_group([decoded.sequences[seq] for seq in retained.sequences], None, retained.width)
            groups.append(replace(group, span=Span(retained.start, len(retained.sequences), retained.width)))
            if (first := joined.get(index)) is not None:
                span = Span(retained.slot(first), len(retained.sequences) - first, retained.width)
                fills.append(Fill(span, group.blocks.view(len(retained.sequences), -1)[first:].flatten()))
        return groups, fills

    def _grown(self, group: GroupPlan) -> GroupPlan:
        """Return the retained group with one token more for each sequence; the old plan becomes invalid."""
        if group.mask is not None:
            lengths = self._context.context_lens
            group.mask.numpy()[range(len(group.sequences)), 0, 0, [lengths[seq] - 1 for seq in group.sequences]] = 0.0
        return replace(group, token_indices=self._token_indices(group.sequences), num_seen=group.num_seen + 1)

    def _compose(
        self,
        spec: AttentionSpec,
        decoded: Decoded | None,
        retained_groups: Sequence[GroupPlan] = (),
        retained: GatheredPlan | None = None,
        *,
        is_settled: bool = False,
    ) -> StepPlan:
        """Return a plan with these groups; other sequences are gathered or attended to alone."""
        window = spec.sliding_window
        to_gather = self._sequences_to_gather({seq for group in retained_groups for seq in group.sequences})
        buckets = buckets_of(to_gather, self._context.context_lens)
        groups = [*retained_groups, *(self._plan_group(bucket, window) for bucket in buckets)]
        return StepPlan(self._plan_sequences(groups, spec), groups, decoded, retained, is_settled)

    def _plan_sequences(self, groups: list[GroupPlan], spec: AttentionSpec) -> list[SequencePlan]:
        """Return the plans of the sequences outside the groups."""
        starts = self._context.query_starts
        gathered = {seq for group in groups for seq in group.sequences}
        sequences = []
        for seq, num_context in enumerate(self._context.context_lens):
            num_queries = starts[seq + 1] - starts[seq]
            if num_queries and seq not in gathered:
                sequences.append(self._plan_sequence(seq, num_queries, num_context, spec))
        return sequences

    def _sequences_to_gather(self, besides: set[int]) -> set[int]:
        """Return decoding sequences outside `besides` that share calls: scattered ones, and short ones if several."""
        starts, lengths = self._context.query_starts, self._context.context_lens
        decoding = [seq for seq in range(len(lengths)) if starts[seq + 1] - starts[seq] == 1 and seq not in besides]
        short = {seq for seq in decoding if lengths[seq] < _MIN_VIEW_LENGTH}
        together = short if len(short) > 1 else set()
        scattered = {seq for seq in decoding if seq not in together and self._consecutive_start(seq) is None}
        return scattered | short if len(scattered | short) > 1 else scattered

    def _consecutive_start(self, seq: int) -> int | None:
        """Return the pool index of a sequence's first key if its blocks are consecutive, otherwise None."""
        if seq not in self._block_starts:
            context = self._context
            num_blocks = -(-context.context_lens[seq] // context.block_size)
            blocks = self._tables[seq, :num_blocks].tolist()
            is_consecutive = bool(blocks) and blocks == list(range(blocks[0], blocks[0] + num_blocks))
            self._block_starts[seq] = blocks[0] * context.block_size if is_consecutive else None
        return self._block_starts[seq]

    def _slots(self, seq: int, start: int, end: int) -> torch.Tensor:
        context = self._context
        positions = torch.arange(start, end, device=context.block_tables.device)
        blocks = context.block_tables[seq].index_select(0, positions // context.block_size)
        return blocks * context.block_size + positions % context.block_size

    def _plan_sequence(self, seq: int, num_queries: int, num_context: int, spec: AttentionSpec) -> SequencePlan:
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
        block_start = self._consecutive_start(seq)
        return SequencePlan(
            token_start=self._context.query_starts[seq],
            token_end=self._context.query_starts[seq + 1],
            key_start=0 if block_start is None else block_start + key_start,
            num_keys=num_keys,
            slots=self._slots(seq, key_start, num_context) if block_start is None else None,
            mask=mask,
            is_causal=is_causal,
        )

    def _plan_group(self, sequences: list[int], sliding_window: int | None, width: int | None = None) -> GroupPlan:
        """Return the plan of one group.

        Args:
            sequences: Sequence numbers of its sequences.
            sliding_window: Window of the layers.
            width: Slots of each sequence, in whole blocks, without a window; None: as many as needed.
        """
        context, size = self._context, self._context.block_size
        device = context.block_tables.device
        ends = np.array([context.context_lens[seq] for seq in sequences])[:, None]
        begins = np.zeros_like(ends) if sliding_window is None else np.maximum(ends - sliding_window, 0)
        first_blocks, last_blocks = begins // size, (ends - 1) // size
        num_blocks = width // size if width else int((last_blocks - first_blocks).max()) + 1
        # A sequence repeats its last block, because blocks of others may hold numbers that are not finite.
        columns = np.minimum(first_blocks + np.arange(num_blocks), last_blocks)
        blocks = self._tables[np.array(sequences)[:, None], columns]
        positions = first_blocks * size + np.arange(num_blocks * size)
        is_seen = (positions >= begins) & (positions < ends)
        num_seen = int((ends - first_blocks * size).max())
        mask = None
        if not is_seen[:, :num_seen].all():
            mask = torch.from_numpy(np.where(is_seen, np.float32(0), np.float32("-inf"))).to(device)
            mask = mask.view(len(sequences), 1, 1, -1)
        return GroupPlan(
            sequences=sequences,
            token_indices=self._token_indices(sequences),
            blocks=torch.from_numpy(blocks.ravel()).to(device),
            width=num_blocks * size,
            num_seen=num_seen,
            mask=mask,
        )

    def _token_indices(self, sequences: list[int]) -> torch.Tensor | None:
        """Return the tokens of decoding sequences; None: all of the step in order."""
        starts = self._context.query_starts
        tokens = [starts[seq] for seq in sequences]
        is_everything = tokens == list(range(starts[-1]))
        return None if is_everything else torch.tensor(tokens, device=self._context.block_tables.device)


def _mask(num_queries: int, num_keys: int, sliding_window: int | None, device: torch.device) -> torch.Tensor:
    """Return the additive mask of the last `num_queries` of `num_keys` positions."""
    keys = torch.arange(num_keys, device=device)
    queries = torch.arange(num_keys - num_queries, num_keys, device=device).unsqueeze(1)
    is_hidden = keys > queries
    if sliding_window is not None:
        is_hidden |= keys <= queries - sliding_window
    return torch.zeros(num_queries, num_keys, device=device).masked_fill_(is_hidden, float("-inf"))
