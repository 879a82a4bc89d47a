"""Attention over the paged KV pool in plain PyTorch: the CPU backend, and the reference for faster ones.

A sequence with consecutive blocks is read as a view of the pool, without a copy. Decoding sequences that are short or
have scattered blocks are gathered in groups of similar length, padded, and attended to in one call. Scattered sequences
with several queries (prefill chunks, draft tokens) are gathered one by one. The gathered memory of continuing decodes,
and of the longest prompt in chunks, is retained, and each step adds only the new tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.attention.base import AttentionSpec, ForwardContext, KVCache
from engine.attention.explicit import explicit_attention
from engine.attention.gathered_prompt import GatheredPrompt
from engine.attention.step_plan import GroupPlan, SequencePlan, StepPlan, StepPlanner
from engine.attention.torch_kv_cache import (
    AttentionScratch,
    BlockMemory,
    HeadMajorKVCache,
    QuantizedKVCache,
    ReadableKVCache,
    SlotPlaces,
    TorchKVCache,
    unwritten_zeros,
)

_MAX_RETAINED_BYTES = 8 << 20
"""Maximum memory of the gathered keys and values of one layer's decoding sequences, in bytes."""

_LayerKind = tuple[int | None, int, int]
"""Properties of layers that share a plan: window, KV heads, head size."""


class TorchAttention:
    """PyTorch attention backend; runs one step at a time: `prepare`, then `forward` once per layer."""

    name = "torch"

    def __init__(self, device: torch.device, *, has_int8_kv: bool = False) -> None:
        """Create the backend.

        Args:
            device: Device of the KV pools.
            has_int8_kv: True for int8 pools with a scale for each position and head.
        """
        self._device = device
        self._has_int8_kv = has_int8_kv
        self.head_major: torch.dtype | None = None
        """Dtype of head-major pools, the layout of compiled steps; None: pools are token-major."""
        self._places, self._window_slot_places = SlotPlaces(), SlotPlaces()
        self._block_size = 1
        # By whether the layers are windowed: slots that the step writes, blocks that begin, and their planner.
        self._slots: dict[bool, torch.Tensor] = {}
        self._new_blocks: dict[bool, torch.Tensor | None] = {}
        self._planners: dict[bool, StepPlanner] = {}
        self._plans: dict[_LayerKind, StepPlan] = {}
        self._last_plans: dict[_LayerKind, StepPlan] = {}
        self._scratch = AttentionScratch()

    def allocate(self, num_blocks: int, block_size: int, spec: AttentionSpec, dtype: torch.dtype) -> ReadableKVCache:
        """Return an empty KV pool for one layer."""
        return self.allocate_layers(num_blocks, block_size, [spec], dtype)[0]

    def allocate_layers(
        self,
        num_blocks: int,
        block_size: int,
        specs: Sequence[AttentionSpec],
        dtype: torch.dtype,
        *,
        num_window_blocks: int = 0,
    ) -> list[ReadableKVCache]:
        """Return an empty KV pool for each layer.

        Args:
            num_blocks: Blocks of each pool.
            block_size: Tokens of a block.
            specs: Attention of each layer.
            dtype: Dtype of keys and values, unless the backend's pools have one of their own.
            num_window_blocks: Blocks of layers with a sliding window, which then have slots and tables of their own; 0:
                as many as of the others, and the same ones.
        """
        are_windowed = [num_window_blocks > 0 and spec.sliding_window is not None for spec in specs]
        windowed = [spec for spec, is_windowed in zip(specs, are_windowed, strict=True) if is_windowed]
        others = [spec for spec, is_windowed in zip(specs, are_windowed, strict=True) if not is_windowed]
        of_windows = iter(self._pools(num_window_blocks, block_size, windowed, dtype, is_windowed=True))
        of_others = iter(self._pools(num_blocks, block_size, others, dtype, is_windowed=False))
        return [next(of_windows if is_windowed else of_others) for is_windowed in are_windowed]

    def _pools(
        self, num_blocks: int, block_size: int, specs: Sequence[AttentionSpec], dtype: torch.dtype, *, is_windowed: bool
    ) -> list[ReadableKVCache]:
        if self.head_major is not None and not self._has_int8_kv and specs:
            places = self._window_slot_places if is_windowed else self._places
            memory = BlockMemory(num_blocks, block_size, specs, self.head_major)
            return [HeadMajorKVCache(memory, spec, places, is_windowed=is_windowed) for spec in specs]
        num_slots = num_blocks * block_size
        return [self._token_major(num_slots, spec, dtype, is_windowed=is_windowed) for spec in specs]

    def _token_major(
        self, num_slots: int, spec: AttentionSpec, dtype: torch.dtype, *, is_windowed: bool
    ) -> ReadableKVCache:
        shape = (num_slots, spec.num_kv_heads, spec.head_dim)
        if self._has_int8_kv:
            return QuantizedKVCache(shape, dtype, self._device, is_windowed=is_windowed)
        # Zeros instead of garbage: masked columns may read unwritten slots, and 0 * NaN is NaN.
        keys, values = (unwritten_zeros(*shape, dtype=dtype, device=self._device) for _ in range(2))
        return TorchKVCache(keys, values, is_windowed=is_windowed)

    def prepare(self, context: ForwardContext) -> None:
        """Store the step's context; the first layer of each shape builds its plan."""
        self._places.begin(context.slot_mapping)
        self._block_size = context.block_size
        self._lay_out(context, is_windowed=False)
        if context.window_slots is not None and context.window_tables is not None:
            windowed = replace(context, slot_mapping=context.window_slots, block_tables=context.window_tables)
            self._window_slot_places.begin(context.window_slots)
            self._lay_out(windowed, is_windowed=True)
        self._last_plans, self._plans = self._plans, {}

    def _lay_out(self, context: ForwardContext, *, is_windowed: bool) -> None:
        # A sequence owns a block from the moment it writes the block's first slot.
        slots = context.slot_mapping.cpu().numpy()
        new_slots = slots[slots % context.block_size == 0]
        new_blocks = torch.from_numpy(new_slots // context.block_size).to(self._device) if new_slots.size else None
        self._slots[is_windowed], self._new_blocks[is_windowed] = context.slot_mapping, new_blocks
        self._planners[is_windowed] = StepPlanner(context)

    def pass_over(self) -> None:
        """Drop the plans, because a step was computed elsewhere and the retained memory does not fit the next step."""
        self._plans = {}

    def forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, cache: KVCache, spec: AttentionSpec
    ) -> torch.Tensor:
        """Write keys and values, then attend; queries and result are [T, heads, head_dim]."""
        assert isinstance(cache, TorchKVCache | HeadMajorKVCache | QuantizedKVCache)
        assert self._planners, "forward before prepare"
        new_blocks = self._new_blocks[cache.is_windowed]
        if new_blocks is not None:
            cache.clear(new_blocks, self._block_size)
        cache.write(keys, values, self._slots[cache.is_windowed])
        plan = self._plan(cache, spec, queries.dtype)
        if len(plan.sequences) == 1 and not plan.groups:
            return self._attend_sequence(queries, keys, values, cache, spec, plan.sequences[0])
        if plan.retained is not None:
            self._keep(keys, values, cache, spec, plan)
        if len(plan.groups) == 1 and plan.groups[0].token_indices is None:
            return self._attend_group(queries, cache, spec, plan.groups[0])
        attended = torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
        for seq in plan.sequences:
            tokens = slice(seq.token_start, seq.token_end)
            attended[tokens] = self._attend_sequence(queries[tokens], keys[tokens], values[tokens], cache, spec, seq)
        for group in plan.groups:
            assert group.token_indices is not None, "a group of all tokens is the only one"
            chosen = queries.index_select(0, group.token_indices)
            found = self._attend_group(chosen, cache, spec, group)
            attended.index_copy_(0, group.token_indices, found)
        return attended

    def _plan(self, cache: ReadableKVCache, spec: AttentionSpec, dtype: torch.dtype) -> StepPlan:
        kind = spec.sliding_window, spec.num_kv_heads, spec.head_dim
        plan, planner = self._plans.get(kind), self._planners[cache.is_windowed]
        if plan is None:
            slot_bytes = 2 * spec.num_kv_heads * spec.head_dim * dtype.itemsize
            max_retained_slots = _MAX_RETAINED_BYTES // slot_bytes if dtype == torch.float32 else 0
            plan = self._plans[kind] = planner.plan(spec, self._last_plans.get(kind), max_retained_slots)
        if (
            plan.retained is not None
            and plan.retained.before is not None
            and cache.retained.state is not plan.retained.before
        ):
            # Steps of another model ran in between, or a step failed.
            plan = self._plans[kind] = planner.plan(spec)
        return plan

    def _keep(
        self, keys: torch.Tensor, values: torch.Tensor, cache: ReadableKVCache, spec: AttentionSpec, plan: StepPlan
    ) -> None:
        """Update the retained memory of the groups' sequences with this step's tokens, which the cache holds."""
        retained, retained_plan = cache.retained, plan.retained
        assert retained_plan is not None
        retained.begin(retained_plan, spec)
        for fill in retained_plan.fills:
            retained.fill(fill.span, *cache.gather_blocks(fill.blocks, self._block_size, self._scratch), spec)
        if not retained_plan.layout.is_new:
            slots, tokens = self._slots[cache.is_windowed], retained_plan.tokens
            if tokens.numel() != slots.numel():
                keys, values, slots = (t.index_select(0, tokens) for t in (keys, values, slots))
            retained.add(*cache.stored(keys, values, slots, self._scratch), retained_plan)
        retained.state = retained_plan.state

    def _attend_sequence(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        cache: ReadableKVCache,
        spec: AttentionSpec,
        seq: SequencePlan,
    ) -> torch.Tensor:
        """Return the attention of one sequence [queries, heads, head_dim]; the arguments hold its tokens alone."""
        if seq.prompt is not None:
            keys, values = self._read_prompt(keys, values, cache, seq, seq.prompt)
        elif seq.slots is None:
            keys, values = cache.span(seq.key_start, seq.num_keys, self._scratch)
        else:
            keys, values = cache.gather(seq.slots, self._scratch)
        if seq.token_end - seq.token_start == 1:
            return _attend_one_query(queries, keys, values, spec)
        if seq.mask is not None:
            return _attend_chunk(queries, keys, values, spec, seq.mask)
        attended = _attend(
            queries.transpose(0, 1).unsqueeze(0),
            keys.transpose(0, 1).unsqueeze(0),
            values.transpose(0, 1).unsqueeze(0),
            spec,
            sinks=None if spec.sinks is None else spec.sinks.view(-1, 1, 1),
            is_causal=seq.is_causal,
        )
        return attended.squeeze(0).transpose(0, 1)

    def _read_prompt(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        cache: ReadableKVCache,
        seq: SequencePlan,
        prompt: GatheredPrompt,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all keys and values of a prompt [positions, kv_heads, head_dim], and keep them for the next step."""
        assert seq.slots is not None
        if not prompt.start or (prompt.before is not None and cache.prompt.state is prompt.before):
            slots = self._slots[cache.is_windowed][seq.token_start : seq.token_end]
            cache.prompt.put(prompt, prompt.start, *cache.stored(keys, values, slots, self._scratch))
        else:
            cache.prompt.put(prompt, 0, *cache.gather(seq.slots, self._scratch))
        return cache.prompt.read(prompt.end)

    def _attend_group(
        self, queries: torch.Tensor, cache: ReadableKVCache, spec: AttentionSpec, group: GroupPlan
    ) -> torch.Tensor:
        """Return the attention [num_seqs, heads, head_dim] of a group's sequences with one query each."""
        if group.span is not None:
            return cache.retained.attend(queries, group.span, group.num_seen, group.mask, spec)
        shape = (-1, group.width, spec.num_kv_heads, spec.head_dim)
        gathered = cache.gather_blocks(group.blocks, self._block_size, self._scratch)
        keys, values = (t.view(shape).narrow(1, 0, group.num_seen).transpose(1, 2) for t in gathered)
        grouped = queries.reshape(-1, spec.num_kv_heads, spec.num_heads // spec.num_kv_heads, spec.head_dim)
        mask = None if group.mask is None else group.mask.narrow(3, 0, group.num_seen)
        sinks = None if spec.sinks is None else spec.sinks.view(spec.num_kv_heads, -1, 1)
        attended = _attend(grouped, keys, values, spec, sinks=sinks, mask=mask)
        return attended.reshape(-1, spec.num_heads, spec.head_dim)


def _attend_one_query(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spec: AttentionSpec
) -> torch.Tensor:
    """Return [1, heads, head_dim]; heads that share a KV head act as several queries, so keys are read once."""
    grouped = queries.view(spec.num_kv_heads, 1, -1, spec.head_dim)
    sinks = None if spec.sinks is None else spec.sinks.view(spec.num_kv_heads, 1, -1, 1)
    attended = _attend(
        grouped, keys.transpose(0, 1).unsqueeze(1), values.transpose(0, 1).unsqueeze(1), spec, sinks=sinks
    )
    return attended.reshape(1, spec.num_heads, spec.head_dim)


def _attend_chunk(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spec: AttentionSpec, mask: torch.Tensor
) -> torch.Tensor:
    """Return [queries, heads, head_dim]; heads that share a KV head act as more queries here too.

    `mask` is additive float32 [heads per KV head * queries, keys].
    """
    num_queries = queries.shape[0]
    by_head = queries.view(num_queries, spec.num_kv_heads, -1, spec.head_dim).permute(1, 2, 0, 3)
    grouped = by_head.reshape(spec.num_kv_heads, 1, -1, spec.head_dim)
    sinks = None
    if spec.sinks is not None:
        sinks = spec.sinks.view(spec.num_kv_heads, 1, -1, 1).repeat_interleave(num_queries, 2)
    attended = _attend(
        grouped, keys.transpose(0, 1).unsqueeze(1), values.transpose(0, 1).unsqueeze(1), spec, sinks=sinks, mask=mask
    )
    by_query = attended.view(by_head.shape).permute(2, 0, 1, 3)
    return by_query.reshape(num_queries, spec.num_heads, spec.head_dim)


def _attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    spec: AttentionSpec,
    *,
    sinks: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    is_causal: bool = False,
) -> torch.Tensor:
    """Attend with queries [N, heads, queries, head_dim] over keys and values [N, kv_heads, keys, head_dim].

    `mask` is additive float32, `sinks` are those of the spec in the layout of the queries; the result has the queries'
    shape.
    """
    if spec.softcap is not None or spec.sinks is not None:
        scale, softcap = spec.scale, spec.softcap
        return explicit_attention(
            queries, keys, values, scale=scale, softcap=softcap, sinks=sinks, mask=mask, is_causal=is_causal
        )
    return scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=None if mask is None else mask.to(queries.dtype),
        is_causal=is_causal,
        scale=spec.scale,
        enable_gqa=queries.shape[1] != keys.shape[1],
    )
