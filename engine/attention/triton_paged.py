"""Attention backend of Triton kernels: the default on CUDA; on a CPU through Triton's interpreter for tests."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Protocol

import torch
import triton

from engine.attention.base import AttentionSpec, ForwardContext, KVCache
from engine.attention.triton_kv_cache import TritonKVCache, max_code
from engine.kernels.paged_attention import attend, reduce_segments
from engine.kernels.rotate_and_store import rotate_and_store

_MIN_LANES = 16  # the smallest M that tl.dot accepts
_MAX_LANES = 64
_TILE = 32
_MAX_SEGMENTS = 16
_LONGEST_VERIFICATION = 16
"""Maximum number of tokens of a verification; a sequence with more is a prefill chunk."""


class HeadNorm(Protocol):
    """RMSNorm of each query and key head by itself."""

    weight: torch.Tensor
    """[heads + kv_heads, head_dim]: weights."""
    eps: float


@dataclass(frozen=True, slots=True)
class _Part:
    """Sequences of a step for one launch, and the bounds of its grid."""

    first_seq: int
    num_seqs: int
    first_token: int
    num_tokens: int
    max_query_len: int
    max_context_len: int


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Inputs on the device that all layers of a step share."""

    block_tables: torch.Tensor
    context_lens: torch.Tensor
    query_starts: torch.Tensor
    slot_mapping: torch.Tensor
    block_size: int
    parts: list[_Part]
    is_captured: bool


class TritonPagedAttention:
    """Paged attention for any mix of decode, verification and prefill."""

    name = "triton"

    def __init__(self, *, device: torch.device, num_processors: int = 1, kv_dtype: torch.dtype | None = None) -> None:
        """Create the backend.

        Args:
            device: Device of the KV pools.
            num_processors: Multiprocessors of the GPU, for the choice of segments.
            kv_dtype: int8 or fp8 to quantize the pools; None: the model's dtype.
        """
        self._device = device
        self._num_processors = num_processors
        self._kv_dtype = kv_dtype
        self._step: _Prepared | None = None
        self._captured_outs: dict[torch.Size, torch.Tensor] = {}

    def allocate(self, num_blocks: int, block_size: int, spec: AttentionSpec, dtype: torch.dtype) -> KVCache:
        """Return an empty KV pool for one layer."""
        shape = (num_blocks * block_size, spec.num_kv_heads, spec.head_dim)
        stored = self._kv_dtype or dtype
        keys = torch.zeros(shape, dtype=stored, device=self._device)
        values = torch.zeros(shape, dtype=stored, device=self._device)
        if self._kv_dtype is None:
            return TritonKVCache(keys, values)
        scales = torch.zeros(shape[:2], dtype=torch.float32, device=self._device)
        return TritonKVCache(keys, values, scales, scales.clone())

    def prepare(self, context: ForwardContext) -> None:
        """Copy the step's lengths and block tables to the device, once for all layers."""
        starts, lens = context.query_starts, context.context_lens
        if context.on_device is None:
            # One pinned array and one asynchronous copy.
            is_pinned = self._device.type == "cuda"
            lengths = torch.tensor([*starts, *lens], dtype=torch.int32, pin_memory=is_pinned)
            lengths = lengths.to(self._device, non_blocking=True)
            query_starts, context_lens = lengths[: len(starts)], lengths[len(starts) :]
        else:
            query_starts, context_lens = context.on_device.query_starts, context.on_device.context_lens
        self._step = _Prepared(
            block_tables=context.block_tables.to(self._device, torch.int32, non_blocking=True),
            context_lens=context_lens,
            query_starts=query_starts,
            slot_mapping=context.slot_mapping.to(self._device, non_blocking=True),
            block_size=context.block_size,
            parts=_parts(starts, lens),
            is_captured=context.on_device is not None,
        )

    def forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, cache: KVCache, spec: AttentionSpec
    ) -> torch.Tensor:
        """Write keys and values, then attend; queries and result are [T, heads, head_dim]."""
        step, cache = self._at_work(cache)
        cache.write(keys, values, step.slot_mapping)
        return self._attend(queries.contiguous(), cache, spec, step)

    def rotate_and_forward(
        self,
        heads: torch.Tensor,
        rotations: torch.Tensor,
        norm: HeadNorm | None,
        cache: KVCache,
        spec: AttentionSpec,
    ) -> torch.Tensor:
        """Normalize and rotate heads in place, write keys and values, then attend.

        Args:
            heads: [T, (heads + 2 * kv_heads) * head_dim]: queries, keys and values.
            rotations: complex64 [T, 1, head_dim / 2].
            norm: Norm of query and key heads; None: no norm.
            cache: Pool of the layer; slots below 0 are not written.
            spec: Shape of the attention.

        Returns:
            [T, heads, head_dim].
        """
        step, cache = self._at_work(cache)
        is_quantized = cache.key_scales is not None
        rotate_and_store[(heads.shape[0], spec.num_heads + 2 * spec.num_kv_heads)](
            heads,
            torch.view_as_real(rotations),
            heads if norm is None else norm.weight,
            cache.keys,
            cache.values,
            cache.key_scales if is_quantized else cache.keys,
            cache.value_scales if is_quantized else cache.values,
            step.slot_mapping,
            heads.stride(0),
            cache.keys.stride(0),
            0.0 if norm is None else norm.eps,
            NUM_HEADS=spec.num_heads,
            NUM_KV_HEADS=spec.num_kv_heads,
            HEAD_DIM=spec.head_dim,
            PAIRS_PADDED=triton.next_power_of_2(spec.head_dim // 2),
            HAS_NORM=norm is not None,
            IS_QUANTIZED=is_quantized,
            IS_INTEGER=not cache.keys.dtype.is_floating_point,
            MAX_CODE=max_code(cache.keys.dtype) if is_quantized else 1.0,
            num_warps=1,
        )
        queries = heads[:, : spec.num_heads * spec.head_dim].view(-1, spec.num_heads, spec.head_dim)
        return self._attend(queries, cache, spec, step)

    def _at_work(self, cache: KVCache) -> tuple[_Prepared, TritonKVCache]:
        assert self._step is not None, "prepare() comes before forward()"
        assert isinstance(cache, TritonKVCache), f"a pool of another backend: {type(cache).__name__}"
        return self._step, cache

    def _attend(
        self, queries: torch.Tensor, cache: TritonKVCache, spec: AttentionSpec, step: _Prepared
    ) -> torch.Tensor:
        if step.is_captured:
            out = self._captured_out(queries)
        else:
            out = torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
        for part in step.parts:
            _launch(out, queries, cache, spec, step, part, self._segments(part, spec))
        return out

    def _captured_out(self, queries: torch.Tensor) -> torch.Tensor:
        """Return one output for all layers, whose unwritten padding stays finite."""
        out = self._captured_outs.get(queries.shape)
        if out is None or out.dtype != queries.dtype:
            with torch.inference_mode(False):
                out = torch.zeros(queries.shape, dtype=queries.dtype, device=queries.device)
            self._captured_outs[queries.shape] = out
        return out

    def _segments(self, part: _Part, spec: AttentionSpec) -> int:
        """Return the number of key segments: several only if query blocks are few and keys are many."""
        if spec.num_heads // spec.num_kv_heads * part.max_query_len > _MAX_LANES:
            return 1
        programs = part.num_seqs * spec.num_kv_heads
        wanted = max(1, 2 * self._num_processors // programs)
        useful = max(1, part.max_context_len // (4 * _TILE))
        return min(_MAX_SEGMENTS, 1 << (min(wanted, useful) - 1).bit_length())


def _parts(starts: list[int], lens: list[int]) -> list[_Part]:
    """Return the step as one part, or its decoding and verifying sequences apart from the prefill chunks after them.

    Together, short ones would run in a chunk's wide query blocks and with their long contexts in one segment.
    """
    lengths = [end - start for start, end in itertools.pairwise(starts)]
    num_decoding = next((seq for seq, length in enumerate(lengths) if length > _LONGEST_VERIFICATION), len(lengths))
    bounds = [0, num_decoding, len(lengths)] if 0 < num_decoding < len(lengths) else [0, len(lengths)]
    return [
        _Part(
            first_seq=first,
            num_seqs=last - first,
            first_token=starts[first],
            num_tokens=starts[last] - starts[first],
            max_query_len=max(lengths[first:last]),
            max_context_len=max(lens[first:last]),
        )
        for first, last in itertools.pairwise(bounds)
    ]


def _launch(
    out: torch.Tensor,
    queries: torch.Tensor,
    cache: TritonKVCache,
    spec: AttentionSpec,
    step: _Prepared,
    part: _Part,
    segments: int,
) -> None:
    """Attend for one part; `queries` [T, heads, head_dim] may be a view of wider rows."""
    group = spec.num_heads // spec.num_kv_heads
    block_m = max(_MIN_LANES, triton.next_power_of_2(group * min(part.max_query_len, max(1, _MAX_LANES // group))))
    block_q = max(1, block_m // group)
    # Partial results are numbered from the step's first token on, like the output.
    flat = (part.first_token + part.num_tokens) * spec.num_heads * segments if segments > 1 else 0
    partial_out = torch.empty(flat * spec.head_dim, dtype=torch.float32, device=queries.device)
    # Two statistics for each segment; an empty segment also writes its own (-inf and 0), so all are defined.
    partial = torch.empty(2, flat, dtype=torch.float32, device=queries.device)
    is_quantized = cache.key_scales is not None
    sequences = slice(part.first_seq, part.first_seq + part.num_seqs)
    grid = (part.num_tokens // block_q + part.num_seqs, spec.num_kv_heads, segments)
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
        queries if spec.sinks is None else spec.sinks,
        step.block_tables[sequences],
        step.context_lens[sequences],
        step.query_starts[part.first_seq :],
        part.first_token,
        part.num_seqs,
        spec.scale,
        queries.stride(0),
        cache.keys.stride(0),
        step.block_tables.stride(0),
        NUM_HEADS=spec.num_heads,
        NUM_KV_HEADS=spec.num_kv_heads,
        HEAD_DIM=spec.head_dim,
        HEAD_DIM_PADDED=_padded(spec.head_dim),
        BLOCK_SIZE=step.block_size,
        BLOCK_Q=block_q,
        BLOCK_M=block_m,
        TILE=_TILE,
        WINDOW=spec.sliding_window or 0,
        SOFTCAP=spec.softcap or 0.0,
        NUM_SEGMENTS=segments,
        IS_QUANTIZED=is_quantized,
        HAS_SINKS=spec.sinks is not None,
    )
    if segments > 1:
        _reduce(out, partial_out, partial, spec, step, part, segments)


def _reduce(
    out: torch.Tensor,
    partial_out: torch.Tensor,
    partial: torch.Tensor,
    spec: AttentionSpec,
    step: _Prepared,
    part: _Part,
    segments: int,
) -> None:
    """Merge the segments of every token's heads."""
    reduce_segments[(part.num_tokens * spec.num_heads,)](
        out,
        partial_out,
        partial[0],
        partial[1],
        step.query_starts[part.first_seq :],
        part.num_seqs,
        part.first_token * spec.num_heads,
        NUM_HEADS=spec.num_heads,
        HEAD_DIM=spec.head_dim,
        HEAD_DIM_PADDED=_padded(spec.head_dim),
        NUM_SEGMENTS=segments,
    )


def _padded(head_dim: int) -> int:
    return max(_MIN_LANES, 1 << (head_dim - 1).bit_length())
