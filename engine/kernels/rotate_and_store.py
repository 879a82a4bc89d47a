"""Kernel for everything between the QKV projection and attention.

One program handles one head of one token. Queries and keys are normalized if the family requires it, and rotated.
Queries are written back in place. Keys and values go to their slot of the KV pool, quantized with their own scale.
A negative slot belongs to the padding of a captured step and stores nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rotate_and_store(
    heads_ptr,
    rotations_ptr,
    norm_weight_ptr,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    slots_ptr,
    token_stride,
    slot_stride,
    eps,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAIRS_PADDED: tl.constexpr,
    HAS_NORM: tl.constexpr,
    IS_QUANTIZED: tl.constexpr,
    IS_INTEGER: tl.constexpr,
    MAX_CODE: tl.constexpr,
):
    """Normalize, rotate and store one head of one token.

    Pairs that rotate together are adjacent. Rotations are float32 [T, HEAD_DIM / 2, 2], cosine before sine.
    """
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    pairs = tl.arange(0, PAIRS_PADDED)
    is_pair = pairs < HEAD_DIM // 2
    at = heads_ptr + token * token_stride + head * HEAD_DIM + 2 * pairs
    even = tl.load(at, mask=is_pair, other=0.0).to(tl.float32)
    odd = tl.load(at + 1, mask=is_pair, other=0.0).to(tl.float32)

    if head < NUM_HEADS + NUM_KV_HEADS:
        if HAS_NORM:
            scale = 1.0 / tl.sqrt(tl.sum(even * even + odd * odd, axis=0) / HEAD_DIM + eps)
            weight_at = norm_weight_ptr + head * HEAD_DIM + 2 * pairs
            even = even * scale * tl.load(weight_at, mask=is_pair, other=0.0).to(tl.float32)
            odd = odd * scale * tl.load(weight_at + 1, mask=is_pair, other=0.0).to(tl.float32)
        turn_at = rotations_ptr + token * HEAD_DIM + 2 * pairs
        cosine = tl.load(turn_at, mask=is_pair, other=0.0)
        sine = tl.load(turn_at + 1, mask=is_pair, other=0.0)
        turned = even * cosine - odd * sine
        odd = even * sine + odd * cosine
        even = turned
    if head < NUM_HEADS:
        tl.store(at, even.to(heads_ptr.dtype.element_ty), mask=is_pair)
        tl.store(at + 1, odd.to(heads_ptr.dtype.element_ty), mask=is_pair)
        return

    slot = tl.load(slots_ptr + token).to(tl.int64)
    if slot < 0:
        return
    is_key = head < NUM_HEADS + NUM_KV_HEADS
    kv_head = tl.where(is_key, head - NUM_HEADS, head - NUM_HEADS - NUM_KV_HEADS)
    if IS_QUANTIZED:
        largest = tl.maximum(tl.max(tl.abs(even), axis=0), tl.max(tl.abs(odd), axis=0))
        scale = tl.maximum(largest / MAX_CODE, 1e-12)
        even = even / scale
        odd = odd / scale
        if IS_INTEGER:
            even = tl.where(even >= 0, tl.floor(even + 0.5), -tl.floor(-even + 0.5))
            odd = tl.where(odd >= 0, tl.floor(odd + 0.5), -tl.floor(-odd + 0.5))
        if is_key:
            tl.store(key_scale_ptr + slot * NUM_KV_HEADS + kv_head, scale)
        else:
            tl.store(value_scale_ptr + slot * NUM_KV_HEADS + kv_head, scale)
    to = slot * slot_stride + kv_head * HEAD_DIM + 2 * pairs
    if is_key:
        tl.store(key_ptr + to, even.to(key_ptr.dtype.element_ty), mask=is_pair)
        tl.store(key_ptr + to + 1, odd.to(key_ptr.dtype.element_ty), mask=is_pair)
    else:
        tl.store(value_ptr + to, even.to(value_ptr.dtype.element_ty), mask=is_pair)
        tl.store(value_ptr + to + 1, odd.to(value_ptr.dtype.element_ty), mask=is_pair)
