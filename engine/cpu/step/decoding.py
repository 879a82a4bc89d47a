"""Decoder step of few tokens, executed by several threads.

A layer has up to nine phases of chunks, which threads take as they become free. A step needs no thread except the
caller, and a thread that the system suspends delays only the chunk it has taken.
"""

from __future__ import annotations

import numpy as np

from engine.cpu.attention.attention import attend, block_of, key_at, value_at
from engine.cpu.attention.head_tiles import store_key, store_value, turn, turn_normed
from engine.cpu.gemm.arithmetic import copy, gate_sigmoid, integers, normalise, put, scale, soften, view, wipe
from engine.cpu.gemm.projections import prepared, project
from engine.cpu.jit.compiler import compiled, inlined
from engine.cpu.jit.kernel import address_of, call_at
from engine.cpu.jit.layout import GROUP
from engine.cpu.jit.work_queue import CHUNK, PHASE_BYTES, chunks, finish, take, wait
from engine.cpu.step.dense import add_normed_phase, add_phase, gate_phase, read_branch, write_phase

PHASES_PER_LAYER = 9
_ONE, _NO_CAP = np.float32(1.0), np.float32(0.0)
_FIRST = np.int64(0)
"""Number of the first token, as Numba would compile the function of a literal number apart."""


@compiled
def rotations_of(layer, step):
    """Return the address of the rotations of a layer's heads."""
    return step.local_rotations if layer.is_local != 0 else step.rotations


@compiled
def slots_of(layer, step):
    """Return the address of the slots that a layer stores in."""
    return step.window_slots if layer.is_windowed != 0 else step.slots


@inlined
def _project_head(model, layer, step, inputs, head, is_narrowed):
    """Compute queries, keys or values of one head: of all tokens, or queries of the sampled tokens alone."""
    if not is_narrowed or head >= model.num_heads:
        _project_tokens(model, layer, step, inputs, head, _FIRST, step.num_tokens)
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
    of_tokens = inputs + first * layer.qkv.row_bytes
    project(layer.qkv, head * size, size, of_tokens, count, found + 4 * first * stride, stride)
    slots = integers(slots_of(layer, step), step.num_tokens)
    if layer.norms_heads_together != 0 and head < num_rotated:
        # Tokens of one block are stored by several threads later, so its old content is cleared before.
        if head >= model.num_heads:
            for token in range(first, first + count):
                _clear_block(model, layer, layer.keys, slots[token], head - model.num_heads)
        return
    for token in range(first, first + count):
        at = found + 4 * token * stride
        if head < num_rotated:
            turns = rotations_of(layer, step) + 4 * token * size
            if layer.qk_norm != 0:
                turn_normed(at, layer.qk_norm + 4 * head * size, turns, size, model.epsilon)
            else:
                turn(at, 0, turns, size, model.epsilon)
        if head >= model.num_heads:
            is_key = head < num_rotated
            pool = layer.keys if is_key else layer.values
            kv_head = head - (model.num_heads if is_key else num_rotated)
            _clear_block(model, layer, pool, slots[token], kv_head)
            _store(model, layer, at, pool, slots[token], kv_head, is_key)


@compiled
def _clear_block(model, layer, pool, slot, kv_head):
    """Clear the old content of a block, if the slot is its first one."""
    if slot % model.block_size == 0:
        block = block_of(model, layer, pool, slot // model.block_size, kv_head)
        wipe(block, model.head_dim * model.block_size, 1, model.kv_bytes)


@compiled
def _store(model, layer, source, pool, slot, kv_head, is_key):
    """Store one head's key or value in its slot."""
    size, block_size, kv_bytes = model.head_dim, model.block_size, model.kv_bytes
    block = block_of(model, layer, pool, slot // block_size, kv_head)
    place = slot % block_size
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
def _project_gates(layer, step, inputs, chunk):
    """Project a chunk of the gates of what attention returns, of all tokens."""
    first, size = chunk * CHUNK, layer.output_gate.num_outputs
    project(layer.output_gate, first, min(CHUNK, size - first), inputs, step.num_tokens, step.gates + 4 * first, size)


@compiled
def _gate_attended(model, layer, step, group, first_head, num_heads):
    """Scale what attention returned to a group's tokens for some KV heads by its gates."""
    of_head = model.num_heads // model.num_kv_heads * model.head_dim
    for member in range(group.num_tokens):
        source = (group.first_token + member) * layer.output_gate.num_outputs + first_head * of_head
        target = (group.place + member) * layer.output_gate.num_outputs + first_head * of_head
        gate_sigmoid(step.gates + 4 * source, step.attended + 4 * target, num_heads * of_head)


@compiled
def _norm_heads_phase(model, layer, step, num_tokens, phase):
    """Execute one thread's part of norms over all heads together, the rotations behind them and the stores of keys."""
    size = model.head_dim
    num_rotated = model.num_heads + model.num_kv_heads
    stride = (num_rotated + model.num_kv_heads) * size
    slots = integers(slots_of(layer, step), num_tokens)
    token = take(phase)
    while token < num_tokens:
        heads = step.qkv + 4 * token * stride
        turns = rotations_of(layer, step) + 4 * token * size
        for is_key in range(2):
            first, count = (model.num_heads, model.num_kv_heads) if is_key else (0, model.num_heads)
            at = heads + 4 * first * size
            normalise(at, layer.qk_norm + 4 * first * size, at, 1, count * size, model.epsilon)
        for head in range(num_rotated):
            at = heads + 4 * head * size
            turn(at, 0, turns, size, model.epsilon)
            if head >= model.num_heads:
                _store(model, layer, at, layer.keys, slots[token], head - model.num_heads, True)
        finish(phase)
        token = take(phase)
    wait(phase, num_tokens)


@inlined
def _mlp(model, layer, step, inputs, tokens, residual, thread, phase, scratch, codes):
    """Execute one thread's part of a layer's MLP or experts: four phases."""
    if layer.experts != 0:
        records = address_of(model), address_of(layer), address_of(step)
        call_at(model.mixture, (*records, inputs, tokens, residual, thread, phase, scratch, codes))
        return
    gate_phase(layer.gate_up, model.activation, tokens, inputs, step.gated, phase, scratch, codes)
    phase += PHASE_BYTES
    _add_output(model, layer.down, layer.mlp_output_norm, step, step.gated, tokens, residual, phase, scratch, codes)


@compiled
def _add_output(model, projection, norm, step, inputs, tokens, residual, phase, scratch, codes):
    """Execute one thread's part of adding a branch's last projection to the residual: two phases if it is normalized.

    The function has two call sites, one of each branch.
    """
    if norm == 0:
        add_phase(projection, model.branch_scale, inputs, tokens, residual, phase, scratch, codes)
        return
    write_phase(projection, inputs, tokens, step.branch, phase, codes)
    add_normed_phase(model, norm, step.branch, residual, tokens, phase + PHASE_BYTES)


@inlined
def _attention(model, layer, step, inputs, is_narrowed, phase, scratch, codes):
    """Execute one thread's part of a layer's attention, without its last projection: three phases."""
    tokens = step.num_tokens
    num_heads = model.num_heads + 2 * model.num_kv_heads
    num_chunks = num_heads + chunks(layer.output_gate.num_outputs)
    head = take(phase)
    if head < num_heads:
        ready = prepared(layer.qkv, inputs, tokens, codes)
        while head < num_heads:
            _project_head(model, layer, step, ready, head, is_narrowed)
            finish(phase)
            head = take(phase)
    if head < num_chunks:
        ready = prepared(layer.output_gate, inputs, tokens, codes)
        while head < num_chunks:
            _project_gates(layer, step, ready, head - num_heads)
            finish(phase)
            head = take(phase)
    wait(phase, num_chunks)
    phase += PHASE_BYTES
    if layer.norms_heads_together != 0:
        _norm_heads_phase(model, layer, step, tokens, phase)
    phase += PHASE_BYTES
    groups = view(step.groups, step.num_groups, GROUP)
    if is_narrowed:
        groups = view(step.sampled_groups, step.num_sampled_groups, GROUP)
    num_together = step.heads_together
    num_parts = model.num_kv_heads // num_together
    num_chunks = groups.size * num_parts
    chunk = take(phase)
    while chunk < num_chunks:
        group, head = groups[chunk // num_parts], chunk % num_parts * num_together
        if is_narrowed and head == 0:
            _carry_over(model, step, group)
        attend(model, layer, step, scratch, group, head, num_together)
        if layer.output_gate.num_outputs != 0:
            _gate_attended(model, layer, step, group, head, num_together)
        finish(phase)
        chunk = take(phase)
    wait(phase, num_chunks)


@inlined
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
    residual = step.residual
    for index in range(model.num_layers):
        layer = layers[step.first_layer + index]
        is_narrowed = index + 1 == model.num_layers and step.num_sampled < tokens
        inputs = read_branch(model, layer.attention_norm, residual, tokens, normed)
        if layer.recurrent != 0:
            records = address_of(model), address_of(layer), address_of(step)
            call_at(model.recurrence, (*records, inputs, np.int64(is_narrowed), phase, scratch, codes))
        else:
            _attention(model, layer, step, inputs, is_narrowed, phase, scratch, codes)
        if is_narrowed:
            tokens, residual = step.num_sampled, step.sampled_residual
        phase += 3 * PHASE_BYTES
        norm = layer.attended_norm
        _add_output(model, layer.output, norm, step, step.attended, tokens, residual, phase, scratch, codes)
        phase += 2 * PHASE_BYTES
        inputs = read_branch(model, layer.mlp_norm, residual, tokens, normed)
        _mlp(model, layer, step, inputs, tokens, residual, thread, phase, scratch, codes)
        phase += 4 * PHASE_BYTES


@compiled
def logits_phase(model, normed, num_rows, logits, phase, codes):
    """Execute one thread's part of the logits [rows, vocabulary] of normalized states."""
    head = model.head
    inputs = prepared(head, normed, num_rows, codes)
    num_chunks = chunks(head.num_outputs)
    chunk = take(phase)
    while chunk < num_chunks:
        first = chunk * CHUNK
        count = min(CHUNK, head.num_outputs - first)
        project(head, first, count, inputs, num_rows, logits + 4 * first, head.num_outputs)
        if model.logit_softcap > _NO_CAP:
            for row in range(num_rows):
                soften(logits + 4 * (row * head.num_outputs + first), count, model.logit_scale, model.logit_softcap)
        elif model.logit_scale != _ONE:
            for row in range(num_rows):
                found = logits + 4 * (row * head.num_outputs + first)
                scale(found, model.logit_scale, found, count)
        finish(phase)
        chunk = take(phase)
    wait(phase, num_chunks)
