"""Attention over the paged KV pool in plain PyTorch: the CPU backend, and the oracle for faster ones.

A row whose blocks follow one another is read as a view of the pool, without a copy. Decode rows that are short or
whose blocks are scattered are gathered together, padded to the longest of their bucket, and attended to in one call;
scattered rows with several queries (prefill chunks, speculative drafts) are gathered one by one. Of rows that go on
decoding, and of the longest prompt that goes on in chunks, what was gathered is kept, and only what is new is added.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.attention.base import AttentionSpec, ForwardContext, KVCache
from engine.attention.gathered_prompt import GatheredPrompt
from engine.attention.softcap import softcapped_attention
from engine.attention.step_plan import GroupPlan, RowPlan, StepPlan, StepPlanner
from engine.attention.torch_kv_cache import (
    AttentionScratch,
    HeadMajorKVCache,
    QuantizedKVCache,
    ReadableKVCache,
    SlotPlaces,
    TorchKVCache,
)

_MAX_KEPT_BYTES = 8 << 20
"""Of one layer: most that its decoding rows keep of what they gathered."""

_LayerKind = tuple[int | None, int, int]
"""Layers for which one plan is good: window, key heads, numbers of a head."""


class TorchAttention:
    """One step at a time: `prepare`, then `forward` once per layer."""

    name = "torch"

    def __init__(self, device: torch.device, *, has_int8_kv: bool = False) -> None:
        """`has_int8_kv`: pools hold int8 with a scale for each position and head."""
        self._device = device
        self._has_int8_kv = has_int8_kv
        self.head_major: torch.dtype | None = None
        """What pools hold that lie head by head, as compiled steps read them; None: they do not."""
        self._places = SlotPlaces()
        self._slot_mapping = torch.empty(0, dtype=torch.int64, device=device)
        self._block_size = 1
        self._opened: torch.Tensor | None = None
        self._planner: StepPlanner | None = None
        self._plans: dict[_LayerKind, StepPlan] = {}
        self._last_plans: dict[_LayerKind, StepPlan] = {}
        self._scratch = AttentionScratch()

    def allocate(self, num_blocks: int, block_size: int, spec: AttentionSpec, dtype: torch.dtype) -> ReadableKVCache:
        """An empty KV pool for one layer."""
        shape = (num_blocks * block_size, spec.num_kv_heads, spec.head_dim)
        if self._has_int8_kv:
            return QuantizedKVCache(shape, dtype, self._device)
        if self.head_major is not None:
            return HeadMajorKVCache(num_blocks, block_size, spec, self.head_major, self._places)
        # Zeros, not garbage: masked columns may read slots never written, and 0 * NaN is NaN.
        return TorchKVCache(
            torch.zeros(shape, dtype=dtype, device=self._device), torch.zeros(shape, dtype=dtype, device=self._device)
        )

    def prepare(self, context: ForwardContext) -> None:
        """Take up the step's context; plans are made when the first layer of each window asks for one."""
        self._slot_mapping = context.slot_mapping
        self._places.begin(context.slot_mapping)
        self._block_size = context.block_size
        # A sequence writes a block from its first slot on: then it becomes the sequence's own.
        slots = context.slot_mapping.cpu().numpy()
        opened = slots[slots % context.block_size == 0]
        self._opened = torch.from_numpy(opened // context.block_size).to(self._device) if opened.size else None
        self._planner = StepPlanner(context)
        self._last_plans, self._plans = self._plans, {}

    def pass_over(self) -> None:
        """A step was computed without this: what was kept for the one behind the last does not fit the next."""
        self._plans = {}

    def forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, cache: KVCache, spec: AttentionSpec
    ) -> torch.Tensor:
        """Write keys and values, attend; [T, heads, head_dim] in, the same shape out."""
        assert isinstance(cache, TorchKVCache | HeadMajorKVCache | QuantizedKVCache)
        if self._opened is not None:
            cache.clear(self._opened, self._block_size)
        cache.write(keys, values, self._slot_mapping)
        plan = self._plan(cache, spec, queries.dtype)
        if len(plan.rows) == 1 and not plan.groups:
            return self._attend_row(queries, keys, values, cache, spec, plan.rows[0])
        if plan.kept is not None:
            self._keep(keys, values, cache, spec, plan)
        if len(plan.groups) == 1 and plan.groups[0].token_indices is None:
            return self._attend_group(queries, cache, spec, plan.groups[0])
        attended = torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
        for row in plan.rows:
            tokens = slice(row.token_start, row.token_end)
            attended[tokens] = self._attend_row(queries[tokens], keys[tokens], values[tokens], cache, spec, row)
        for group in plan.groups:
            assert group.token_indices is not None, "a group of all tokens is the only one"
            chosen = queries.index_select(0, group.token_indices)
            found = self._attend_group(chosen, cache, spec, group)
            attended.index_copy_(0, group.token_indices, found)
        return attended

    def _plan(self, cache: ReadableKVCache, spec: AttentionSpec, dtype: torch.dtype) -> StepPlan:
        kind = spec.sliding_window, spec.num_kv_heads, spec.head_dim
        plan = self._plans.get(kind)
        if plan is None:
            assert self._planner is not None, "forward before prepare"
            slot_bytes = 2 * spec.num_kv_heads * spec.head_dim * dtype.itemsize
            max_kept_slots = _MAX_KEPT_BYTES // slot_bytes if dtype == torch.float32 else 0
            plan = self._plans[kind] = self._planner.plan(spec, self._last_plans.get(kind), max_kept_slots)
        if plan.kept is not None and plan.kept.before is not None and cache.kept.state is not plan.kept.before:
            # Steps of another model came between, or one that failed.
            assert self._planner is not None
            plan = self._plans[kind] = self._planner.plan(spec)
        return plan

    def _keep(
        self, keys: torch.Tensor, values: torch.Tensor, cache: ReadableKVCache, spec: AttentionSpec, plan: StepPlan
    ) -> None:
        """Have all that the groups' rows hold, this step included, which was written to the cache."""
        kept, kept_plan = cache.kept, plan.kept
        assert kept_plan is not None
        kept.begin(kept_plan, spec)
        for fill in kept_plan.fills:
            kept.fill(fill.span, *cache.gather_blocks(fill.blocks, self._block_size, self._scratch), spec)
        if not kept_plan.layout.is_new:
            slots, tokens = self._slot_mapping, kept_plan.tokens
            if tokens.numel() != slots.numel():
                keys, values, slots = (t.index_select(0, tokens) for t in (keys, values, slots))
            kept.add(*cache.stored(keys, values, slots, self._scratch), kept_plan)
        kept.state = kept_plan.state

    def _attend_row(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        cache: ReadableKVCache,
        spec: AttentionSpec,
        row: RowPlan,
    ) -> torch.Tensor:
        """[queries, heads, head_dim] of one row, given its tokens of this step alone."""
        if row.prompt is not None:
            keys, values = self._read_prompt(keys, values, cache, row, row.prompt)
        elif row.slots is None:
            keys, values = cache.span(row.key_start, row.num_keys, self._scratch)
        else:
            keys, values = cache.gather(row.slots, self._scratch)
        if row.token_end - row.token_start == 1:
            return _attend_one_query(queries, keys, values, spec)
        if row.mask is not None:
            return _attend_chunk(queries, keys, values, spec, row.mask)
        attended = _attend(
            queries.transpose(0, 1).unsqueeze(0),
            keys.transpose(0, 1).unsqueeze(0),
            values.transpose(0, 1).unsqueeze(0),
            spec,
            is_causal=row.is_causal,
        )
        return attended.squeeze(0).transpose(0, 1)

    def _read_prompt(
        self, keys: torch.Tensor, values: torch.Tensor, cache: ReadableKVCache, row: RowPlan, prompt: GatheredPrompt
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values of a row [positions, kv_heads, head_dim], kept for the next step."""
        assert row.slots is not None
        if not prompt.start or (prompt.before is not None and cache.prompt.state is prompt.before):
            slots = self._slot_mapping[row.token_start : row.token_end]
            cache.prompt.put(prompt, prompt.start, *cache.stored(keys, values, slots, self._scratch))
        else:
            cache.prompt.put(prompt, 0, *cache.gather(row.slots, self._scratch))
        return cache.prompt.read(prompt.end)

    def _attend_group(
        self, queries: torch.Tensor, cache: ReadableKVCache, spec: AttentionSpec, group: GroupPlan
    ) -> torch.Tensor:
        """[rows, heads, head_dim] of the group's rows, each with one query, which are given alone."""
        if group.span is not None:
            return cache.kept.attend(queries, group.span, group.num_seen, group.mask, spec)
        shape = (-1, group.width, spec.num_kv_heads, spec.head_dim)
        gathered = cache.gather_blocks(group.blocks, self._block_size, self._scratch)
        keys, values = (t.view(shape).narrow(1, 0, group.num_seen).transpose(1, 2) for t in gathered)
        grouped = queries.reshape(-1, spec.num_kv_heads, spec.num_heads // spec.num_kv_heads, spec.head_dim)
        mask = None if group.mask is None else group.mask.narrow(3, 0, group.num_seen)
        attended = _attend(grouped, keys, values, spec, mask=mask)
        return attended.reshape(-1, spec.num_heads, spec.head_dim)


def _attend_one_query(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spec: AttentionSpec
) -> torch.Tensor:
    """[1, heads, head_dim]. The heads that share keys are taken as that many queries, so keys are read once."""
    grouped = queries.view(spec.num_kv_heads, 1, -1, spec.head_dim)
    attended = _attend(grouped, keys.transpose(0, 1).unsqueeze(1), values.transpose(0, 1).unsqueeze(1), spec)
    return attended.reshape(1, spec.num_heads, spec.head_dim)


def _attend_chunk(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spec: AttentionSpec, mask: torch.Tensor
) -> torch.Tensor:
    """[queries, heads, head_dim]; the heads that share keys are taken as more queries here too.

    `mask`: additive float32 [heads that share keys * queries, keys].
    """
    num_queries = queries.shape[0]
    by_head = queries.view(num_queries, spec.num_kv_heads, -1, spec.head_dim).permute(1, 2, 0, 3)
    grouped = by_head.reshape(spec.num_kv_heads, 1, -1, spec.head_dim)
    attended = _attend(grouped, keys.transpose(0, 1).unsqueeze(1), values.transpose(0, 1).unsqueeze(1), spec, mask=mask)
    by_query = attended.view(by_head.shape).permute(2, 0, 1, 3)
    return by_query.reshape(num_queries, spec.num_heads, spec.head_dim)


def _attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    spec: AttentionSpec,
    *,
    mask: torch.Tensor | None = None,
    is_causal: bool = False,
) -> torch.Tensor:
    """[N, heads, queries, head_dim] over keys and values [N, kv_heads, keys, head_dim]; `mask` is additive float32."""
    if spec.softcap is not None:
        return softcapped_attention(
            queries, keys, values, scale=spec.scale, softcap=spec.softcap, mask=mask, is_causal=is_causal
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
