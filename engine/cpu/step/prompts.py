"""Prompts of a step, executed by several threads in panels of up to 64 tokens of a sequence.

A panel needs only the keys and values before it. So a layer has one barrier, and a panel goes from one layer's
attention directly to the next layer's keys and values.
"""

from __future__ import annotations

import numpy as np

from engine.cpu.attention.attention import block_of, key_at, value_at
from engine.cpu.gemm.arithmetic import add, clear, fetch, floats, gate, integers, normalise, put, wipe
from engine.cpu.gemm.matrix_unit import TILE_OUTPUTS, configure, release
from engine.cpu.gemm.panel_tiles import LOWEST_SCORE, ROW_BYTES, WIDTH
from engine.cpu.gemm.panels import (
    add_products,
    cut_panel,
    normalise_panel,
    on_matrix_unit,
    project_panel,
    put_down,
    rotate_panel,
    scale_panel,
    take_up,
    weigh_panel,
    widened,
)
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.work_queue import PHASE_BYTES, finish, take, wait

KEYS = 64
"""Number of keys whose scores are computed together; blocks may be larger."""
PANEL_FIELDS = 5
"""Number of fields of a panel: first token, number of tokens, row, computed lanes, and 1 if a token is sampled.

Without a sampled token the last layer computes only the panel's keys and values.
"""
_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)
_LOWEST = np.float32(LOWEST_SCORE)


@compiled
def _stripe(projection, first):
    """Return the number of outputs that are computed together from `first` on."""
    return min(TILE_OUTPUTS, projection.num_outputs - first)


@compiled
def _cut_for(projection, step, panel, pieces):
    """Cut a projection's inputs for the matrix unit, if it uses the unit."""
    if on_matrix_unit(projection, step.has_unit):
        cut_panel(panel, projection.num_inputs, pieces)


@compiled
def _store_panel(model, layer, step, qkv, first, count, row_end):
    """Store a panel's keys and values in their slots; after the last token, the rest of its block is cleared."""
    size, block_size = model.head_dim, model.block_size
    keys = qkv + ROW_BYTES * model.num_heads * size
    values = keys + ROW_BYTES * model.num_kv_heads * size
    slots = integers(step.slots + 8 * first, count)
    token = 0
    while token < count:
        block, place = slots[token] // block_size, slots[token] % block_size
        together = min(block_size - place, count - token)
        is_last = row_end and token + together == count
        for kv_head in range(model.num_kv_heads):
            at = ROW_BYTES * kv_head * size + 4 * token
            key_block = block_of(model, layer.keys, block, kv_head)
            value_block = block_of(model, layer.values, block, kv_head)
            _store_block(model, keys + at, values + at, key_block, value_block, place, together, is_last)
        token += together


@compiled
def _store_block(model, keys, values, key_block, value_block, place, count, is_last):
    """Store one head's keys and values of adjacent tokens from a place in a block on.

    After a sequence's last token, the rest of the block is filled with zeros.
    """
    size, block_size, kv_bytes = model.head_dim, model.block_size, model.kv_bytes
    missing = block_size - place - count if is_last else 0
    apart = 4 // kv_bytes
    for i in range(size):
        target = key_at(key_block, i, place, block_size, kv_bytes)
        put(keys + ROW_BYTES * i, 1, count, target, apart, kv_bytes)
        wipe(target + 4 * count, missing, apart, kv_bytes)
    for token in range(count):
        target = value_at(value_block, place + token, size, kv_bytes)
        put(values + 4 * token, WIDTH, size, target, apart, kv_bytes)
    for behind in range(place + count, place + count + missing):
        wipe(value_at(value_block, behind, size, kv_bytes), size, apart, kv_bytes)


@compiled
def _read_panel(model, layer, step, index, normed, pieces, room):
    """Compute queries, keys and values of a panel, and store keys and values."""
    panel = integers(step.panels + 8 * PANEL_FIELDS * index, PANEL_FIELDS)
    first, count, row, width = panel[0], panel[1], panel[2], panel[3]
    hidden, size = model.hidden_size, model.head_dim
    num_rotated = model.num_heads + model.num_kv_heads
    residual = step.panel_residual + ROW_BYTES * hidden * index
    qkv = step.panel_qkv + ROW_BYTES * layer.qkv.num_outputs * index
    normalise_panel(residual, layer.attention_norm, normed, hidden, model.epsilon, room)
    _cut_for(layer.qkv, step, normed, pieces)
    for output in range(0, layer.qkv.num_outputs, TILE_OUTPUTS):
        found = qkv + ROW_BYTES * output
        project_panel(layer.qkv, step.has_unit, output, _stripe(layer.qkv, output), normed, pieces, found, width, room)
    turns = step.panel_turns + ROW_BYTES * size * index
    for head in range(num_rotated):
        at = qkv + ROW_BYTES * head * size
        if layer.qk_norm != 0:
            normalise_panel(at, layer.qk_norm + 4 * head * size, at, size, model.epsilon, room)
        rotate_panel(at, turns, size)
    is_last = index + 1 == step.num_panels
    if not is_last:
        following = integers(step.panels + 8 * PANEL_FIELDS * (index + 1), PANEL_FIELDS)
        is_last = following[2] != row
    _store_panel(model, layer, step, qkv, first, count, is_last)


@compiled
def _hide(scores, start, num_keys, positions, window):
    """Mask the scores of keys that a token does not see; keys are at positions from `start` on."""
    for key in range(num_keys):
        values = floats(scores + ROW_BYTES * key, WIDTH)
        # Tokens are consecutive: the first ones precede the key, and the last ones are beyond the window.
        behind = start + key - positions[0]
        for token in range(min(behind, WIDTH)):
            values[token] = _LOWEST
        for token in range(min(max(behind + window, 0), WIDTH), WIDTH):
            values[token] = _LOWEST


@compiled
def _attend_head(model, layer, table, positions, queries, kv_head, width, out, room):
    """Attend with one head's queries of a panel over the sequence's slots, a few blocks at a time.

    Scores become weights relative to the maximum so far, and a higher one rescales earlier sums (online softmax,
    Milakov and Gimelshein, 2018).
    """
    size, block_size, kv_bytes = model.head_dim, model.block_size, model.kv_bytes
    of_block = size * block_size
    highest, totals, factors, wide = room, room + ROW_BYTES, room + 2 * ROW_BYTES, room + 3 * ROW_BYTES
    scores = wide + 4 * of_block
    top, total, last = floats(highest, WIDTH), floats(totals, WIDTH), positions.size - 1
    num_blocks = positions[last] // block_size + 1
    at_once = max(1, KEYS // block_size)
    for token in range(WIDTH):
        top[token] = _LOWEST
    clear(totals, WIDTH)
    clear(out, size * WIDTH)
    first_block = max(0, positions[0] + 1 - layer.window) // block_size
    # Blocks are grouped by their place in the sequence, so that sums do not depend on the panel's start.
    for start in range(first_block // at_once * at_once, num_blocks, at_once):
        end = min(start + at_once, num_blocks)
        num_keys, base = (end - start) * block_size, start * block_size
        clear(scores, num_keys * WIDTH)
        for block in range(start, end):
            found = scores + ROW_BYTES * (block - start) * block_size
            # The block's values are read after all scores, and the keys of the next group after that.
            fetch(block_of(model, layer.values, table[block], kv_head), kv_bytes * of_block)
            if block + at_once < num_blocks:
                fetch(block_of(model, layer.keys, table[block + at_once], kv_head), kv_bytes * of_block)
            keys = widened(block_of(model, layer.keys, table[block], kv_head), kv_bytes, size, block_size, wide)
            add_products(keys, 4, 4 * block_size, block_size, queries, size, found, width)
        hides = base + num_keys - 1 > positions[0] or base <= positions[last] - layer.window
        if hides:
            _hide(scores, base, num_keys, positions, layer.window)
        weigh_panel(scores, num_keys, model.score_scale, highest, totals, factors)
        scale_panel(out, size, factors)
        for block in range(start, end):
            values = widened(block_of(model, layer.values, table[block], kv_head), kv_bytes, block_size, size, wide)
            weights = scores + ROW_BYTES * (block - start) * block_size
            add_products(values, 4, 4 * size, size, weights, block_size, out, width)
    for token in range(WIDTH):
        total[token] = _ONE / total[token] if token <= last else _ZERO
    scale_panel(out, size, totals)


@compiled
def _attend_panel(model, layer, step, index, attended, room):
    """Attend with all heads' queries of a panel."""
    panel = integers(step.panels + 8 * PANEL_FIELDS * index, PANEL_FIELDS)
    positions = integers(step.positions + 8 * panel[0], panel[1])
    table = integers(step.tables + 8 * panel[2] * step.table_width, step.table_width)
    qkv = step.panel_qkv + ROW_BYTES * layer.qkv.num_outputs * index
    shared = model.num_heads // model.num_kv_heads
    for head in range(model.num_heads):
        at = ROW_BYTES * head * model.head_dim
        _attend_head(model, layer, table, positions, qkv + at, head // shared, panel[3], attended + at, room)


@compiled
def _add_projected(projection, step, index, inputs, pieces, residual, room):
    """Add a projection of a panel to its residual."""
    width = integers(step.panels + 8 * PANEL_FIELDS * index, PANEL_FIELDS)[3]
    _cut_for(projection, step, inputs, pieces)
    weights = room + ROW_BYTES * TILE_OUTPUTS
    for output in range(0, projection.num_outputs, TILE_OUTPUTS):
        count = _stripe(projection, output)
        project_panel(projection, step.has_unit, output, count, inputs, pieces, room, width, weights)
        add(residual + ROW_BYTES * output, room, count * WIDTH)


@compiled
def _gate_panel(layer, step, index, normed, pieces, gated, room):
    """Compute silu(gate) * up of a panel."""
    width = integers(step.panels + 8 * PANEL_FIELDS * index, PANEL_FIELDS)[3]
    gate_up, size = layer.gate_up, layer.down.num_inputs
    _cut_for(gate_up, step, normed, pieces)
    ups = room + ROW_BYTES * TILE_OUTPUTS
    weights = ups + ROW_BYTES * TILE_OUTPUTS
    for first in range(0, size, TILE_OUTPUTS):
        count = min(TILE_OUTPUTS, size - first)
        project_panel(gate_up, step.has_unit, first, count, normed, pieces, room, width, weights)
        project_panel(gate_up, step.has_unit, size + first, count, normed, pieces, ups, width, weights)
        gate(room, ups, gated + ROW_BYTES * first, count * WIDTH)


@compiled
def _finish_layer(model, layer, step, index, normed, attended, gated, pieces, room):
    """Compute a layer's attention and MLP of a panel once all keys and values are stored."""
    hidden = model.hidden_size
    residual = step.panel_residual + ROW_BYTES * hidden * index
    _attend_panel(model, layer, step, index, attended, room)
    _add_projected(layer.output, step, index, attended, pieces, residual, room)
    normalise_panel(residual, layer.mlp_norm, normed, hidden, model.epsilon, room)
    _gate_panel(layer, step, index, normed, pieces, gated, room)
    _add_projected(layer.down, step, index, gated, pieces, residual, room)


@compiled
def _begin(model, step, index):
    """Convert a panel's embeddings and rotations to the panel layout."""
    panel = integers(step.panels + 8 * PANEL_FIELDS * index, PANEL_FIELDS)
    hidden, size = model.hidden_size, model.head_dim
    take_up(step.residual + 4 * panel[0] * hidden, hidden, panel[1], step.panel_residual + ROW_BYTES * hidden * index)
    take_up(step.rotations + 4 * panel[0] * size, size, panel[1], step.panel_turns + ROW_BYTES * size * index)


@compiled
def _is_sampled(step, index):
    """Return whether a panel's final states are needed."""
    return integers(step.panels + 8 * PANEL_FIELDS * index, PANEL_FIELDS)[4] != 0


@compiled
def _end(model, step, index):
    """Write the normalized states of a panel's tokens."""
    panel = integers(step.panels + 8 * PANEL_FIELDS * index, PANEL_FIELDS)
    hidden = model.hidden_size
    for token in range(panel[1]):
        out = step.hidden + 4 * (panel[0] + token) * hidden
        put_down(step.panel_residual + ROW_BYTES * hidden * index, hidden, token, out)
        normalise(out, step.norm, out, 1, hidden, model.epsilon)


@compiled
def run_prompts(model, layers, step, work_queue, thread):
    """Execute one thread's part of a step's prompts, from embeddings to final states."""
    normed = step.panel_normed + ROW_BYTES * model.hidden_size * thread
    attended = step.panel_attended + ROW_BYTES * model.num_heads * model.head_dim * thread
    gated = step.panel_gated + ROW_BYTES * model.intermediate_size * thread
    pieces = step.panel_pieces + step.pieces_size * thread
    room = step.panel_room + step.room_size * thread
    if step.has_unit:
        configure(step.unit)
    for index in range(layers.size + 1):
        phase = work_queue + PHASE_BYTES * index
        taken = take(phase)
        while taken < step.num_panels:
            # Later panels of a sequence attend to more and take longer, so they go first.
            panel = step.num_panels - 1 - taken
            goes_on = index < layers.size or _is_sampled(step, panel)
            if index == 0:
                _begin(model, step, panel)
            elif goes_on:
                _finish_layer(model, layers[index - 1], step, panel, normed, attended, gated, pieces, room)
            if index < layers.size:
                _read_panel(model, layers[index], step, panel, normed, pieces, room)
            elif goes_on:
                _end(model, step, panel)
            finish(phase)
            taken = take(phase)
        wait(phase, step.num_panels)
    if step.has_unit:
        release()
