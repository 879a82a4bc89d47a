"""Attention backend on Triton kernels: CUDA's default, and on CPU through Triton's interpreter for tests."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
import triton

from engine.attention.base import AttentionSpec, ForwardContext, KVCache
from engine.kernels.paged_attention import attend, reduce_segments, store_quantized

_MIN_LANES = 16  # the smallest M that tl.dot takes
_TILE = 32
_MAX_SEGMENTS = 16


def max_code(dtype: torch.dtype) -> float:
    """Largest magnitude that a quantized KV dtype represents. Raises ValueError for any other dtype."""
    if dtype == torch.int8:
        return 127.0
    if dtype == torch.float8_e4m3fn:
        return 448.0
    raise ValueError(f"kv dtype: expected int8 or float8_e4m3fn, got {dtype}")


@dataclass(frozen=True, slots=True)
class TritonKVCache:
    """One layer's keys and values, [slots, kv_heads, head_dim]; scales [slots, kv_heads] when quantized."""

    keys: torch.Tensor
    values: torch.Tensor
    key_scales: torch.Tensor | None = None
    value_scales: torch.Tensor | None = None

    def write(self, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim], quantizing each token's head where the pool is quantized."""
        if self.key_scales is None or self.value_scales is None:
            self.keys.index_copy_(0, slot_mapping, keys.to(self.keys.dtype))
            self.values.index_copy_(0, slot_mapping, values.to(self.values.dtype))
            return
        _quantize_into(keys, self.keys, self.key_scales, slot_mapping)
        _quantize_into(values, self.values, self.value_scales, slot_mapping)


@dataclass(slots=True)
class _Prepared:
    """What all layers of a step share, on the device."""

    block_tables: torch.Tensor
    context_lens: torch.Tensor
    query_starts: torch.Tensor
    num_rows: int
    num_tokens: int
    slot_mapping: torch.Tensor
    block_size: int
    max_query_len: int
    max_context_len: int


class TritonPagedAttention:
    """Paged attention for any mix of decode, verification and prefill rows."""

    name = "triton"

    def __init__(self, *, device: torch.device, num_processors: int = 1, kv_dtype: torch.dtype | None = None) -> None:
        """`num_processors`: the card's multiprocessors, for choosing segments; `kv_dtype`: int8 or fp8 to quantize."""
        self._device = device
        self._num_processors = num_processors
        self._kv_dtype = kv_dtype
        self._step: _Prepared | None = None

    def allocate(self, num_blocks: int, block_size: int, spec: AttentionSpec, dtype: torch.dtype) -> KVCache:
        """An empty KV pool for one layer."""
        shape = (num_blocks * block_size, spec.num_kv_heads, spec.head_dim)
        stored = self._kv_dtype or dtype
        keys = torch.zeros(shape, dtype=stored, device=self._device)
        values = torch.zeros(shape, dtype=stored, device=self._device)
        if self._kv_dtype is None:
            return TritonKVCache(keys, values)
        scales = torch.zeros(shape[:2], dtype=torch.float32, device=self._device)
        return TritonKVCache(keys, values, scales, scales.clone())

    def prepare(self, context: ForwardContext) -> None:
        """Put the step's lengths and tables on the device once for all layers."""
        starts = context.query_starts
        lengths = [end - start for start, end in itertools.pairwise(starts)]
        self._step = _Prepared(
            block_tables=context.block_tables.to(self._device, torch.int32, non_blocking=True),
            context_lens=torch.tensor(context.context_lens, dtype=torch.int32, device=self._device),
            query_starts=torch.tensor(starts, dtype=torch.int32, device=self._device),
            num_rows=len(lengths),
            num_tokens=starts[-1],
            slot_mapping=context.slot_mapping.to(self._device, non_blocking=True),
            block_size=context.block_size,
            max_query_len=max(lengths),
            max_context_len=max(context.context_lens),
        )

    def forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, cache: KVCache, spec: AttentionSpec
    ) -> torch.Tensor:
        """Write keys and values, attend; [T, heads, head_dim] in, the same shape out."""
        assert self._step is not None, "prepare() comes before forward()"
        assert isinstance(cache, TritonKVCache), f"a pool of another backend: {type(cache).__name__}"
        step = self._step
        cache.write(keys, values, step.slot_mapping)
        return _launch(queries.contiguous(), cache, spec, step, self._segments(step, spec))

    def _segments(self, step: _Prepared, spec: AttentionSpec) -> int:
        """Cut the keys only where there are too few query blocks to fill the card and enough keys to share out."""
        lanes_each = spec.num_heads // spec.num_kv_heads * step.max_query_len
        if lanes_each > 64:
            return 1
        programs = step.num_rows * spec.num_kv_heads
        wanted = max(1, 2 * self._num_processors // programs)
        useful = max(1, step.max_context_len // (4 * _TILE))
        return min(_MAX_SEGMENTS, 1 << (min(wanted, useful) - 1).bit_length())


def _launch(
    queries: torch.Tensor, cache: TritonKVCache, spec: AttentionSpec, step: _Prepared, segments: int
) -> torch.Tensor:
    group = spec.num_heads // spec.num_kv_heads
    block_m = max(_MIN_LANES, triton.next_power_of_2(group * min(step.max_query_len, max(1, 64 // group))))
    block_q = max(1, block_m // group)
    out = torch.empty_like(queries)
    flat = step.num_tokens * spec.num_heads * segments if segments > 1 else 0
    partial_out = torch.empty(flat * spec.head_dim, dtype=torch.float32, device=queries.device)
    # Two statistics a segment; a row's empty segments still write theirs (-inf and 0), so nothing is left undefined.
    partial = torch.empty(2, flat, dtype=torch.float32, device=queries.device)
    head_dim_padded = max(16, triton.next_power_of_2(spec.head_dim))
    is_quantized = cache.key_scales is not None
    grid = (step.num_tokens // block_q + step.num_rows, spec.num_kv_heads, segments)
    attend[grid](
        out,
        partial_out,
        partial[0],
        partial[1],
        queries,
        cache.keys,
        cache.values,
        cache.key_scales if is_quantized else cache.keys,
        cache.value_scales if is_quantized else cache.values,
        step.block_tables,
        step.context_lens,
        step.query_starts,
        step.num_rows,
        spec.scale,
        queries.stride(0),
        cache.keys.stride(0),
        step.block_tables.stride(0),
        NUM_HEADS=spec.num_heads,
        NUM_KV_HEADS=spec.num_kv_heads,
        HEAD_DIM=spec.head_dim,
        HEAD_DIM_PADDED=head_dim_padded,
        BLOCK_SIZE=step.block_size,
        BLOCK_Q=block_q,
        BLOCK_M=block_m,
        TILE=_TILE,
        WINDOW=spec.sliding_window or 0,
        SOFTCAP=spec.softcap or 0.0,
        NUM_SEGMENTS=segments,
        IS_QUANTIZED=is_quantized,
    )
    if segments > 1:
        reduce_segments[(step.num_tokens * spec.num_heads,)](
            out,
            partial_out,
            partial[0],
            partial[1],
            HEAD_DIM=spec.head_dim,
            HEAD_DIM_PADDED=head_dim_padded,
            NUM_SEGMENTS=segments,
        )
    return out


def _quantize_into(source: torch.Tensor, target: torch.Tensor, scales: torch.Tensor, slots: torch.Tensor) -> None:
    num_tokens, num_kv_heads, head_dim = source.shape
    source = source.contiguous()
    store_quantized[(num_tokens, num_kv_heads)](
        source,
        target,
        scales,
        slots,
        source.stride(0),
        target.stride(0),
        MAX_CODE=max_code(target.dtype),
        IS_INTEGER=not target.dtype.is_floating_point,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        HEAD_DIM_PADDED=max(16, triton.next_power_of_2(head_dim)),
    )
