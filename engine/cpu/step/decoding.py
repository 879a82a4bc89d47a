"""Decoder step of few tokens, executed by several threads.

A layer has five phases of chunks, which threads take as they become free. A step needs no thread except the caller,
and a thread that the system suspends delays only the chunk it has taken.
"""

from __future__ import annotations

from engine.cpu.attention.attention import attend, block_of, key_at, value_at
from engine.cpu.attention.head_tiles import store_key, store_value, turn, turn_normed
from engine.cpu.gemm.arithmetic import add, copy, gate, integers, normalise, put, view, wipe
from engine.cpu.gemm.projections import prepared, prepared_bytes, project
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.layout import GROUP
from engine.cpu.jit.work_queue import CHUNK, PHASE_BYTES, chunks, finish, take, wait

PHASES_PER_LAYER = 5


@compiled
def _project_head(model, layer, step, inputs, head, is_narrowed):
    """Compute queries, keys or values of one head: of all tokens, or queries of the sampled tokens alone."""
    if not is_narrowed or head >= model.num_heads:
        _project_tokens(model, layer, step, inputs, head, 0, step.num_tokens)
        return
    sampled = integers(step.sampled, step.num_sampled)
    start = 0
    for index in range(1, step.num_sampled + 1):
        if index == step.num_sampled or sampled[index] != sampled[index - 1] + 1:
            _project_tokens(model, layer, step, inputs, head, sampled[start], index - start)
            start = index


@compiled
def _project_tokens(model, layer, step, inputs, head, first, count):
    """Project, normalize, rotate and store one head of adjacent tokens."""
    size = model.head_dim
    num_rotated = model.num_heads + model.num_kv_heads
    stride = (num_rotated + model.num_kv_heads) * size
    found = step.qkv + 4 * head * size
    of_tokens = inputs + first * prepared_bytes(layer.qkv)
    project(layer.qkv, head * size, size, of_tokens, count, found + 4 * first * stride, stride)
    slots = integers(step.slots, step.num_tokens)
    for token in range(first, first + count):
        at = found + 4 * token * stride
        if head < num_rotated:
            turns = step.rotations + 4 * token * size
            if layer.qk_norm != 0:
                turn_normed(at, layer.qk_norm + 4 * head * size, turns, size, model.epsilon)
            else:
                turn(at, 0, turns, size, model.epsilon)
        if head >= model.num_heads:
            is_key = head < num_rotated
            pool = layer.keys if is_key else layer.values
            kv_head = head - (model.num_heads if is_key else num_rotated)
            _store(model, at, pool, slots[token], kv_head, is_key)


@compiled
def _store(model, source, pool, slot, kv_head, is_key):
    """Store one head's key or value in its slot; the first slot of a block clears the old content of the others."""
    size, block_size, kv_bytes = model.head_dim, model.block_size, model.kv_bytes
    block = block_of(model, pool, slot // block_size, kv_head)
    place = slot % block_size
    if place == 0:
        wipe(block, size * block_size, 1, kv_bytes)
    if kv_bytes == 2 and is_key:
        store_key(source, size, key_at(block, 0, place, block_size, kv_bytes), 4 * block_size)
    elif kv_bytes == 2:
        store_value(source, size, value_at(block, place - place % 2, size, kv_bytes), place % 2)
    elif is_key:
        put(source, 1, size, key_at(block, 0, place, block_size, kv_bytes), block_size, kv_bytes)
    else:
        copy(source, value_at(block, place, size, kv_bytes), size)


@compiled
def _carry_over(model, step, group):
    """Copy the residual of a group's sampled tokens to where the last layer continues."""
    hidden = model.hidden_size
    source, target = step.residual + 4 * group.first_token * hidden, step.sampled_residual + 4 * group.place * hidden
    copy(source, target, group.num_tokens * hidden)


@compiled
def _add_projected(projection, inputs, tokens, residual, chunk, scratch):
    """Add a chunk of a projection's outputs to the residual."""
    first, hidden = chunk * CHUNK, projection.num_outputs
    count = min(CHUNK, hidden - first)
    project(projection, first, count, inputs, tokens, scratch, CHUNK)
    for token in range(tokens):
        add(residual + 4 * (token * hidden + first), scratch + 4 * token * CHUNK, count)


@compiled
def _add_phase(projection, inputs, tokens, residual, phase, scratch, codes):
    """Execute one thread's part of adding a projection to the residual."""
    inputs = prepared(projection, inputs, tokens, codes)
    num_chunks = chunks(projection.num_outputs)
    chunk = take(phase)
    while chunk < num_chunks:
        _add_projected(projection, inputs, tokens, residual, chunk, scratch)
        finish(phase)
        chunk = take(phase)
    wait(phase, num_chunks)


@compiled
def _gate_chunk(gate_up, tokens, inputs, chunk, gated, scratch):
    """Compute a chunk of silu(gate) * up."""
    size = gate_up.num_outputs // 2
    first = chunk * CHUNK
    count = min(CHUNK, size - first)
    ups = scratch + 4 * tokens * CHUNK
    project(gate_up, first, count, inputs, tokens, scratch, CHUNK)
    project(gate_up, size + first, count, inputs, tokens, ups, CHUNK)
    for token in range(tokens):
        out = gated + 4 * (token * size + first)
        gate(scratch + 4 * token * CHUNK, ups + 4 * token * CHUNK, out, count)


@compiled
def gate_phase(gate_up, tokens, normed, gated, phase, scratch, codes):
    """Execute one thread's part of silu(gate) * up."""
    inputs = prepared(gate_up, normed, tokens, codes)
    num_chunks = chunks(gate_up.num_outputs // 2)
    chunk = take(phase)
    while chunk < num_chunks:
        _gate_chunk(gate_up, tokens, inputs, chunk, gated, scratch)
        finish(phase)
        chunk = take(phase)
    wait(phase, num_chunks)


@compiled
def run_layers(model, layers, step, work_queue, thread):
    """Execute one thread's part of a step, from the embeddings in the residual to the last layer's output there.

    Of a token whose logits are not needed, only the last layer's keys and values are used. The rest of that layer is
    computed for sampled tokens alone, side by side.
    """
    hidden, tokens = model.hidden_size, step.num_tokens
    normed = step.normed + 4 * thread * tokens * hidden
    scratch = step.scratch + 4 * thread * step.scratch_size
    codes = step.codes + thread * step.codes_size
    phase = work_queue
    num_heads = model.num_heads + 2 * model.num_kv_heads
    residual, groups = step.residual, view(step.groups, step.num_groups, GROUP)
    for index in range(model.num_layers):
        layer = layers[step.first_layer + index]
        normalise(residual, layer.attention_norm, normed, tokens, hidden, model.epsilon)
        is_narrowed = index + 1 == model.num_layers and step.num_sampled < tokens
        inputs = prepared(layer.qkv, normed, tokens, codes)
        head = take(phase)
        while head < num_heads:
            _project_head(model, layer, step, inputs, head, is_narrowed)
            finish(phase)
            head = take(phase)
        wait(phase, num_heads)
        if is_narrowed:
            tokens, residual = step.num_sampled, step.sampled_residual
            groups = view(step.sampled_groups, step.num_sampled_groups, GROUP)
        phase += PHASE_BYTES
        num_together = step.heads_together
        num_parts = model.num_kv_heads // num_together
        num_chunks = groups.size * num_parts
        chunk = take(phase)
        while chunk < num_chunks:
            group, head = groups[chunk // num_parts], chunk % num_parts * num_together
            if is_narrowed and head == 0:
                _carry_over(model, step, group)
            attend(model, layer, step, scratch, group, head, num_together)
            finish(phase)
            chunk = take(phase)
        wait(phase, num_chunks)
        phase += PHASE_BYTES
        _add_phase(layer.output, step.attended, tokens, residual, phase, scratch, codes)
        phase += PHASE_BYTES
        normalise(residual, layer.mlp_norm, normed, tokens, hidden, model.epsilon)
        gate_phase(layer.gate_up, tokens, normed, step.gated, phase, scratch, codes)
        phase += PHASE_BYTES
        _add_phase(layer.down, step.gated, tokens, residual, phase, scratch, codes)
        phase += PHASE_BYTES


@compiled
def logits_phase(head, normed, num_rows, logits, phase, codes):
    """Execute one thread's part of the logits [rows, vocabulary] of normalized states."""
    inputs = prepared(head, normed, num_rows, codes)
    num_chunks = chunks(head.num_outputs)
    chunk = take(phase)
    while chunk < num_chunks:
        first = chunk * CHUNK
        count = min(CHUNK, head.num_outputs - first)
        project(head, first, count, inputs, num_rows, logits + 4 * first, head.num_outputs)
        finish(phase)
        chunk = take(phase)
    wait(phase, num_chunks)
