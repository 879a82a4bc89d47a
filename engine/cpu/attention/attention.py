"""Attention of a few tokens over KV blocks in place: scores, softmax weights and weighted sums."""

from __future__ import annotations

import numpy as np

from engine.cpu.attention.block_loops import scorer, summer
from engine.cpu.attention.softmax_tile import NO_SINK, weights_of
from engine.cpu.gemm.arithmetic import clear, copy, fetch, floats, integers, scale, soften, view
from engine.cpu.gemm.micro_kernel import WeightKind
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.compiler import Compiled, compiled, inlined, inner
from engine.cpu.jit.kernel import address_of, call_at, kernel
from engine.cpu.jit.layout import GROUP, LAYER, MODEL, STEP

_ONE, _NO_CAP = np.float32(1.0), np.float32(0.0)
_BLOCKS_AHEAD = 4
"""Number of blocks by which keys are prefetched."""


@compiled
def block_of(model, layer, pool, block, kv_head):
    """Return the address of one head's keys or values of a block."""
    return pool + block * layer.block_bytes + kv_head * model.kv_bytes * model.head_dim * model.block_size


@compiled
def key_at(block, feature, place, block_size, kv_bytes):
    """Return the address of a key's number in a block, adjacent to that of the next key.

    In bfloat16, two features are interleaved in pairs.
    """
    paired = 4 // kv_bytes
    return block + 4 * (feature // paired * block_size + place) + kv_bytes * (feature % paired)


@compiled
def value_at(block, place, size, kv_bytes):
    """Return the address of a value's first number in a block; in bfloat16 two values are interleaved in pairs."""
    paired = 4 // kv_bytes
    return block + 4 * (place // paired * size) + kv_bytes * (place % paired)


@compiled
def _gather(model, step, room, token, count, kv_head):
    """Copy a group's queries of one KV head side by side, followed by zeros for their sums."""
    shared = model.num_heads // model.num_kv_heads
    size = shared * model.head_dim
    stride = (model.num_heads + 2 * model.num_kv_heads) * model.head_dim
    queries = step.qkv + 4 * (token * stride + kv_head * size)
    for member in range(count):
        copy(queries + 4 * member * stride, room + 4 * member * size, size)
    clear(room + 4 * count * size, count * size)


@compiled
def _first_seen(layer, position, block_size):
    """Return the first block that a token sees."""
    return max(0, position + 1 - layer.window) // block_size


def _attention(kind: WeightKind) -> Compiled:
    """Return attention over a pool of keys and values of a kind, for one KV head."""
    score, weigh = scorer(kind), summer(kind)

    @inner
    def score_blocks(model, layer, table, first_block, num_slots, kv_head, queries, num_queries, scores):
        """Compute scores [queries, slots] of a head's keys from a block on, two vectors of keys at a time."""
        size, block_size, kv_bytes = model.head_dim, model.block_size, model.kv_bytes
        step = kv_bytes * block_size
        vectors_of_block = block_size // LANES
        num_vectors = num_slots // LANES
        num_blocks = num_slots // block_size
        block_bytes = kv_bytes * size * block_size
        fetched = 0
        for vector in range(0, num_vectors, 2):
            # Blocks lie anywhere in the pool, so the hardware cannot predict them: keys are prefetched some blocks
            # ahead, and values while scores are computed.
            while fetched * vectors_of_block < vector + 2 and fetched < num_blocks:
                fetch(block_of(model, layer, layer.values, table[first_block + fetched], kv_head), block_bytes)
                if fetched + _BLOCKS_AHEAD < num_blocks:
                    ahead = table[first_block + fetched + _BLOCKS_AHEAD]
                    fetch(block_of(model, layer, layer.keys, ahead, kv_head), block_bytes)
                fetched += 1
            block, place = first_block + vector // vectors_of_block, vector % vectors_of_block
            keys = block_of(model, layer, layer.keys, table[block], kv_head) + 4 * LANES * place
            found = scores + 4 * LANES * vector
            apart = 0
            if vector + 1 < num_vectors:
                block, place = first_block + (vector + 1) // vectors_of_block, (vector + 1) % vectors_of_block
                apart = block_of(model, layer, layer.keys, table[block], kv_head) + 4 * LANES * place - keys
            score(keys, step, apart, queries, num_queries, size, found, num_slots)

    @inlined
    def attend_head(model_at, layer_at, step_at, scores, group_at, kv_head, ahead):
        """Attend for one KV head; `ahead` is the pool of the keys to prefetch for the next head, or 0."""
        model, layer = view(model_at, 1, MODEL)[0], view(layer_at, 1, LAYER)[0]
        step, group = view(step_at, 1, STEP)[0], view(group_at, 1, GROUP)[0]
        size, block_size, shared = model.head_dim, model.block_size, model.num_heads // model.num_kv_heads
        token, count, row, place = group.first_token, group.num_tokens, group.row, group.place
        positions = integers(step.positions + 8 * token, count)
        tables = (step.window_tables if layer.is_windowed != 0 else step.tables) + 8 * row * step.table_width
        table = integers(tables, step.table_width)
        first_block = _first_seen(layer, positions[0], block_size)
        num_blocks = positions[count - 1] // block_size + 1
        base, num_slots = first_block * block_size, (num_blocks - first_block) * block_size
        num_queries = count * shared
        # Queries and their sums follow the scores.
        queries = scores + 4 * num_queries * num_slots
        sums = queries + 4 * num_queries * size
        _gather(model, step, queries, token, count, kv_head)
        score_blocks(model, layer, table, first_block, num_slots, kv_head, queries, num_queries, scores)
        scale_of_scores = model.score_scale
        if model.score_softcap > _NO_CAP:
            soften(scores, num_queries * num_slots, scale_of_scores, model.score_softcap)
            scale_of_scores = _ONE
        shares = floats(queries, num_queries)  # reuses the queries' memory
        for query in range(num_queries):
            end = positions[query // shared] + 1
            start, of_query = max(0, end - layer.window), scores + 4 * query * num_slots
            sink = NO_SINK
            if layer.sinks != 0:
                sink = floats(layer.sinks, model.num_heads)[kv_head * shared + query % shared] / scale_of_scores
            shares[query] = weights_of(of_query, num_slots, start - base, end - base, scale_of_scores, sink)
        values = block_of(model, layer, layer.values, 0, kv_head)
        if ahead != 0:
            ahead = block_of(model, layer, ahead, 0, kv_head + 1)
        block, first, behind = first_block, 0, 0
        while block < num_blocks:
            # Blocks that the same tokens see are processed together.
            while positions[first] // block_size < block:
                first += 1
            while behind < count and _first_seen(layer, positions[behind], block_size) <= block:
                behind += 1
            end = positions[first] // block_size + 1
            if behind < count:
                end = min(end, _first_seen(layer, positions[behind], block_size))
            weigh(
                scores + 4 * (block * block_size - base + first * shared * num_slots),
                num_slots,
                (behind - first) * shared,
                values,
                tables + 8 * block,
                end - block,
                layer.block_bytes,
                block_size,
                sums + 4 * first * shared * size,
                size,
                ahead,
            )
            block = end
        for query in range(num_queries):
            target = (place + query // shared) * model.num_heads + kv_head * shared + query % shared
            scale(sums + 4 * query * size, shares[query], step.attended + 4 * target * size, size)

    return attend_head


_attend_float32, _attend_bfloat16 = _attention("float32"), _attention("bfloat16")


@kernel
def attend_float32(model, layer, step, scores, group, kv_head, ahead):
    """Attend over a pool in float32."""
    _attend_float32(model, layer, step, scores, group, kv_head, ahead)


@kernel
def attend_bfloat16(model, layer, step, scores, group, kv_head, ahead):
    """Attend over a pool in bfloat16."""
    _attend_bfloat16(model, layer, step, scores, group, kv_head, ahead)


@compiled
def attend(model, layer, step, scores, group, first_head, num_heads):
    """Attend with the queries of a group's tokens for some KV heads, each over the sequence's slots up to its token.

    A token's sums are the same as alone: over the blocks that it sees, in their order.
    """
    records = address_of(model), address_of(layer), address_of(step)
    for head in range(first_head, first_head + num_heads):
        # Adjacent heads lie side by side, so the next one's keys are prefetched.
        ahead = layer.keys if head + 1 < first_head + num_heads else 0
        call_at(model.attention, (*records, scores, address_of(group), head, ahead))


ATTENTION = {4: attend_float32, 2: attend_bfloat16}
"""Kernels of attention by the bytes of a number in the KV pool."""
