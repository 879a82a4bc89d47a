"""Causal attention over the paged KV pool: decode, multi-token verification and chunked prefill in one kernel.

Theory of operation
-------------------
The step's tokens lie flattened in row order. A program handles one *query block* of one row for one KV head:
BLOCK_Q consecutive tokens times the GROUP query heads that share the KV head, packed into BLOCK_M lanes. A decode
step (one token) then still fills the matrix units (GQA packing). The program walks the row's keys in tiles of TILE
positions, independent of the pool's block size, and finds each position through the block table. It keeps a running
maximum, sum and weighted value (online softmax, Milakov & Gimelshein, arXiv 1805.02867; FlashAttention-2,
arXiv 2307.08691).

A long context with few query blocks would leave most of the GPU idle. So the keys of a row can be cut into
NUM_SEGMENTS segments, which run as separate programs and leave partial results for `reduce_segments`
(Flash-Decoding). The grid depends only on the batch's shape and not on its lengths, so that a captured graph can be
replayed with other contents. Programs beyond a row's end return at once, and rows without tokens are padding.

A step that mixes decoding sequences with prefill chunks is launched in two parts. Each has its own query block and
number of segments, and `first_token` is the part's first token.

Quantized KV (int8, fp8) has one scale per position and head. Keys are scaled after the first dot product and values
before the second one; both accumulate in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _find_row(query_starts_ptr, first_token, query_block, num_rows, BLOCK_Q: tl.constexpr):
    # Row r owns query blocks from starts[r] // BLOCK_Q + r on: an upper bound that needs no prefix sum.
    low = 0
    high = num_rows
    while low < high:
        middle = (low + high) // 2
        first = (tl.load(query_starts_ptr + middle) - first_token) // BLOCK_Q + middle
        if first <= query_block:
            low = middle + 1
        else:
            high = middle
    return low - 1


@triton.jit
def _tiles_of_segment(
    context_len,
    query_len,
    block_in_row,
    BLOCK_Q: tl.constexpr,
    TILE: tl.constexpr,
    WINDOW: tl.constexpr,
    NUM_SEGMENTS: tl.constexpr,
):
    # Keys that any lane of this block can see: first .. last (exclusive).
    last_token = tl.minimum(block_in_row * BLOCK_Q + BLOCK_Q, query_len)
    key_end = context_len - query_len + last_token
    key_begin = 0
    if WINDOW > 0:
        key_begin = tl.maximum(context_len - query_len + block_in_row * BLOCK_Q - WINDOW + 1, 0)
    first_tile = key_begin // TILE
    num_tiles = (key_end + TILE - 1) // TILE - first_tile
    tiles_each = (num_tiles + NUM_SEGMENTS - 1) // NUM_SEGMENTS
    tile_from = first_tile + tl.program_id(2) * tiles_each
    return tile_from, tl.minimum(tile_from + tiles_each, first_tile + num_tiles), key_end


@triton.jit
def _scores_of_tile(
    query,
    keys,
    key_scale_ptr,
    scale_at,
    key_position,
    is_key,
    position,
    is_lane,
    scale,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    IS_QUANTIZED: tl.constexpr,
):
    scores = tl.dot(query, keys.to(query.dtype), input_precision="ieee").to(tl.float32) * scale
    if IS_QUANTIZED:
        scores = scores * tl.load(key_scale_ptr + scale_at, mask=is_key, other=0.0)[None, :]
    if SOFTCAP > 0.0:
        scores = SOFTCAP * (2.0 / (1.0 + tl.exp(-2.0 * scores / SOFTCAP)) - 1.0)
    is_visible = is_key[None, :] & (key_position[None, :] <= position[:, None]) & is_lane[:, None]
    if WINDOW > 0:
        is_visible = is_visible & (key_position[None, :] > position[:, None] - WINDOW)
    return tl.where(is_visible, scores, float("-inf"))


@triton.jit
def _store_block(
    out_ptr,
    partial_out_ptr,
    partial_max_ptr,
    partial_sum_ptr,
    flat,
    is_lane,
    running_max,
    running_sum,
    accumulated,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    NUM_SEGMENTS: tl.constexpr,
):
    dims = tl.arange(0, HEAD_DIM_PADDED)
    is_out = is_lane[:, None] & (dims < HEAD_DIM)[None, :]
    if NUM_SEGMENTS == 1:
        # Lanes beyond the block have a sum of 0; they are masked out below and must not divide by it.
        result = accumulated / tl.where(is_lane, running_sum, 1.0)[:, None]
        tl.store(out_ptr + flat[:, None] * HEAD_DIM + dims[None, :], result.to(out_ptr.dtype.element_ty), mask=is_out)
    else:
        part = flat * NUM_SEGMENTS + tl.program_id(2)
        tl.store(partial_out_ptr + part[:, None] * HEAD_DIM + dims[None, :], accumulated, mask=is_out)
        tl.store(partial_max_ptr + part, running_max, mask=is_lane)
        tl.store(partial_sum_ptr + part, running_sum, mask=is_lane)


@triton.jit
def _attend_tiles(
    query,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    sink_ptr,
    block_table_ptr,
    kv_head,
    position,
    is_lane,
    tile_from,
    tile_to,
    key_end,
    scale,
    slot_stride,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    IS_QUANTIZED: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    GROUP: tl.constexpr,
):
    # Returns each lane's largest score, its sum of weights and its weighted values.
    dims = tl.arange(0, HEAD_DIM_PADDED)
    is_dim = dims < HEAD_DIM
    running_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    running_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    accumulated = tl.zeros([BLOCK_M, HEAD_DIM_PADDED], dtype=tl.float32)
    if HAS_SINKS:
        # A sink is a score without a value; the first segment counts it.
        heads = kv_head * GROUP + tl.arange(0, BLOCK_M) % GROUP
        has_sink = is_lane & (tl.zeros([BLOCK_M], dtype=tl.int32) == tl.program_id(2))
        running_max = tl.load(sink_ptr + heads, mask=has_sink, other=float("-inf")).to(tl.float32)
        running_sum = tl.where(has_sink, 1.0, 0.0)
    for tile in range(tile_from, tile_to):
        key_position = tile * TILE + tl.arange(0, TILE)
        is_key = key_position < key_end
        block = tl.load(block_table_ptr + key_position // BLOCK_SIZE, mask=is_key, other=0).to(tl.int64)
        slot = block * BLOCK_SIZE + key_position % BLOCK_SIZE
        at = slot * slot_stride + kv_head * HEAD_DIM
        scale_at = slot * NUM_KV_HEADS + kv_head
        keys = tl.load(key_ptr + at[None, :] + dims[:, None], mask=is_key[None, :] & is_dim[:, None], other=0.0)
        scores = _scores_of_tile(
            query, keys, key_scale_ptr, scale_at, key_position, is_key, position, is_lane, scale,
            WINDOW, SOFTCAP, IS_QUANTIZED,
        )  # fmt: skip
        new_max = tl.maximum(running_max, tl.max(scores, axis=1))
        # A lane without a visible key so far has a maximum of -inf; exp(-inf - -inf) would be NaN.
        safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)
        weights = tl.exp(scores - safe_max[:, None])
        decay = tl.exp(running_max - safe_max)
        running_sum = running_sum * decay + tl.sum(weights, axis=1)
        values = tl.load(value_ptr + at[:, None] + dims[None, :], mask=is_key[:, None] & is_dim[None, :], other=0.0)
        if IS_QUANTIZED:
            weights = weights * tl.load(value_scale_ptr + scale_at, mask=is_key, other=0.0)[None, :]
        weighted = tl.dot(weights.to(query.dtype), values.to(query.dtype), input_precision="ieee")
        accumulated = accumulated * decay[:, None] + weighted
        running_max = new_max
    return running_max, running_sum, accumulated


# Values that change from step to step must not cause specialized recompilations.
@triton.jit(
    do_not_specialize=["first_token", "num_rows", "table_stride"],
    do_not_specialize_on_alignment=["block_tables_ptr", "context_lens_ptr", "query_starts_ptr"],
)
def attend(
    out_ptr,
    partial_out_ptr,
    partial_max_ptr,
    partial_sum_ptr,
    query_ptr,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    sink_ptr,
    block_tables_ptr,
    context_lens_ptr,
    query_starts_ptr,
    first_token,
    num_rows,
    scale,
    query_stride,
    slot_stride,
    table_stride,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    NUM_SEGMENTS: tl.constexpr,
    IS_QUANTIZED: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Attend for one query block, KV head and segment; WINDOW 0 means no window, SOFTCAP 0.0 no cap."""
    GROUP: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    query_block, kv_head = tl.program_id(0), tl.program_id(1)
    row = _find_row(query_starts_ptr, first_token, query_block, num_rows, BLOCK_Q)
    row_start = tl.load(query_starts_ptr + row)
    query_len = tl.load(query_starts_ptr + row + 1) - row_start
    block_in_row = query_block - ((row_start - first_token) // BLOCK_Q + row)
    if block_in_row * BLOCK_Q >= query_len:
        return
    context_len = tl.load(context_lens_ptr + row)
    lanes, dims = tl.arange(0, BLOCK_M), tl.arange(0, HEAD_DIM_PADDED)
    token = block_in_row * BLOCK_Q + lanes // GROUP
    flat = (row_start + token) * NUM_HEADS + kv_head * GROUP + lanes % GROUP
    is_lane = (lanes < BLOCK_Q * GROUP) & (token < query_len)
    query_at = (row_start + token) * query_stride + (kv_head * GROUP + lanes % GROUP) * HEAD_DIM
    is_number = is_lane[:, None] & (dims < HEAD_DIM)[None, :]
    query = tl.load(query_ptr + query_at[:, None] + dims[None, :], mask=is_number, other=0.0)
    first, end, key_end = _tiles_of_segment(context_len, query_len, block_in_row, BLOCK_Q, TILE, WINDOW, NUM_SEGMENTS)
    running_max, running_sum, accumulated = _attend_tiles(
        query, key_ptr, value_ptr, key_scale_ptr, value_scale_ptr, sink_ptr, block_tables_ptr + row * table_stride,
        kv_head, context_len - query_len + token, is_lane, first, end, key_end, scale, slot_stride, NUM_KV_HEADS,
        HEAD_DIM, HEAD_DIM_PADDED, BLOCK_SIZE, BLOCK_M, TILE, WINDOW, SOFTCAP, IS_QUANTIZED, HAS_SINKS, GROUP,
    )  # fmt: skip
    _store_block(
        out_ptr, partial_out_ptr, partial_max_ptr, partial_sum_ptr, flat, is_lane, running_max, running_sum,
        accumulated, HEAD_DIM, HEAD_DIM_PADDED, NUM_SEGMENTS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["first_flat", "num_rows"], do_not_specialize_on_alignment=["query_starts_ptr"])
def reduce_segments(
    out_ptr,
    partial_out_ptr,
    partial_max_ptr,
    partial_sum_ptr,
    query_starts_ptr,
    num_rows,
    first_flat,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    NUM_SEGMENTS: tl.constexpr,
):
    """Merge one (token, head)'s segments into its output, counted from `first_flat`; NUM_SEGMENTS is a power of 2."""
    flat = tl.program_id(0).to(tl.int64) + first_flat
    if flat // NUM_HEADS >= tl.load(query_starts_ptr + num_rows):
        # No segment was computed for padding.
        return
    segments = tl.arange(0, NUM_SEGMENTS)
    dims = tl.arange(0, HEAD_DIM_PADDED)
    is_dim = dims < HEAD_DIM
    part = flat * NUM_SEGMENTS + segments
    maxima = tl.load(partial_max_ptr + part)
    weight = tl.exp(maxima - tl.max(maxima, axis=0))
    total = tl.sum(weight * tl.load(partial_sum_ptr + part), axis=0)
    outputs = tl.load(partial_out_ptr + part[:, None] * HEAD_DIM + dims[None, :], mask=is_dim[None, :], other=0.0)
    merged = tl.sum(outputs * weight[:, None], axis=0) / total
    tl.store(out_ptr + flat * HEAD_DIM + dims, merged.to(out_ptr.dtype.element_ty), mask=is_dim)


@triton.jit
def store_quantized(
    source_ptr,
    target_ptr,
    scale_ptr,
    slots_ptr,
    source_stride,
    slot_stride,
    MAX_CODE: tl.constexpr,
    IS_INTEGER: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
):
    """Quantize one token's head with its own scale (largest magnitude / MAX_CODE) while storing it in its slot."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    dims = tl.arange(0, HEAD_DIM_PADDED)
    is_dim = dims < HEAD_DIM
    slot = tl.load(slots_ptr + token)
    values = tl.load(source_ptr + token * source_stride + head * HEAD_DIM + dims, mask=is_dim, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), axis=0) / MAX_CODE, 1e-12)
    codes = values / scale
    if IS_INTEGER:
        # Round half away from zero; the torch oracle does the same.
        codes = tl.where(codes >= 0, tl.floor(codes + 0.5), -tl.floor(-codes + 0.5))
    tl.store(
        target_ptr + slot * slot_stride + head * HEAD_DIM + dims, codes.to(target_ptr.dtype.element_ty), mask=is_dim
    )
    tl.store(scale_ptr + slot * NUM_KV_HEADS + head, scale)
