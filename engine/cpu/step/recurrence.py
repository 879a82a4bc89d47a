"""Gated delta net within a compiled step: projections, convolutions, and the states of its heads.

A head's state follows its tokens one after the other, so a token gets the same numbers however a prompt is cut.
"""

from __future__ import annotations

import math

import numpy as np

from engine.cpu.attention.state_tile import advance_state
from engine.cpu.gemm.arithmetic import add_scaled, clear, copy, exp, floats, gate, integers, normalise, silu, view
from engine.cpu.gemm.projections import prepared, project
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.kernel import kernel
from engine.cpu.jit.layout import LAYER, MODEL, RECURRENT, STATE_ROW, STEP
from engine.cpu.jit.work_queue import CHUNK, PHASE_BYTES, chunks, finish, take, wait

_ONE, _ZERO = np.float32(1.0), np.float32(0.0)
_EPSILON = np.float32(1e-6)
"""Number added to the squared length of a key or query."""


@compiled
def _input_at(inputs, earlier, token, num_earlier, stride):
    """Return the address of a convolution's inputs of a token; those before the step have negative numbers."""
    if token >= 0:
        return inputs + 4 * token * stride
    return earlier + 4 * (num_earlier + token) * CHUNK


@compiled
def _keep_inputs(net, row, inputs, earlier, first, count, end, slot):
    """Store the last inputs of some channels before the end of `end` tokens, if the row has so many, in a slot."""
    if end <= 0 or end > row.num_tokens:
        return
    num_earlier, stride = net.window - 1, net.qkv.num_outputs
    for place in range(num_earlier):
        source = _input_at(inputs, earlier, end - num_earlier + place, num_earlier, stride)
        copy(source, net.inputs + 4 * ((slot * num_earlier + place) * stride + first), count)


@compiled
def _convolve(net, step, first, count, scratch):
    """Replace the inputs of some channels by their convolutions, and store those before each state that is written."""
    num_earlier, stride = net.window - 1, net.qkv.num_outputs
    rows = view(step.state_rows, step.num_state_rows, STATE_ROW)
    total = scratch + 4 * num_earlier * CHUNK
    for index in range(rows.size):
        row = rows[index]
        inputs = step.channels + 4 * (row.first_token * stride + first)
        for place in range(num_earlier):
            earlier = scratch + 4 * place * CHUNK
            if row.read < 0:
                clear(earlier, count)
            else:
                copy(net.inputs + 4 * ((row.read * num_earlier + place) * stride + first), earlier, count)
        _keep_inputs(net, row, inputs, scratch, first, count, row.early_end, row.early_slot)
        _keep_inputs(net, row, inputs, scratch, first, count, row.late_end, row.late_slot)
        _keep_inputs(net, row, inputs, scratch, first, count, row.num_tokens, row.write)
        # From the last token back, as a token's inputs are those of the tokens behind it too.
        for token in range(row.num_tokens - 1, -1, -1):
            clear(total, count)
            for place in range(net.window):
                source = _input_at(inputs, scratch, token - num_earlier + place, num_earlier, stride)
                add_scaled(total, net.convolution + 4 * (place * stride + first), source, count)
            silu(total, inputs + 4 * token * stride, count)


@compiled
def _project_chunk(projection, inputs, tokens, chunk, out):
    """Compute a chunk of a projection [tokens, outputs]; return its first output."""
    first = chunk * CHUNK
    count = min(CHUNK, projection.num_outputs - first)
    project(projection, first, count, inputs, tokens, out + 4 * first, projection.num_outputs)
    return first


@compiled
def _project_up_to(projection, inputs, tokens, codes, chunk, first, end, out, phase):
    """Compute chunks `first` to `end` of a phase, which are a projection's, from `chunk` on; return the next one."""
    if chunk < end:
        ready = prepared(projection, inputs, tokens, codes)
        while chunk < end:
            _project_chunk(projection, ready, tokens, chunk - first, out)
            finish(phase)
            chunk = take(phase)
    return chunk


@compiled
def _project_phase(net, step, inputs, phase, scratch, codes):
    """Execute one thread's part of the projections, and of the convolutions behind the first of them."""
    tokens = step.num_tokens
    behind_channels = chunks(net.qkv.num_outputs)
    behind_gates = behind_channels + chunks(net.gate.num_outputs)
    num_chunks = behind_gates + chunks(net.rates_decays.num_outputs)
    chunk = take(phase)
    if chunk < behind_channels:
        ready = prepared(net.qkv, inputs, tokens, codes)
        while chunk < behind_channels:
            first = _project_chunk(net.qkv, ready, tokens, chunk, step.channels)
            _convolve(net, step, first, min(CHUNK, net.qkv.num_outputs - first), scratch)
            finish(phase)
            chunk = take(phase)
    chunk = _project_up_to(net.gate, inputs, tokens, codes, chunk, behind_channels, behind_gates, step.gates, phase)
    _project_up_to(net.rates_decays, inputs, tokens, codes, chunk, behind_gates, num_chunks, step.rates, phase)
    wait(phase, num_chunks)


@compiled
def _scale_to(length, source, target, size):
    """Write a vector scaled to a length."""
    numbers, out = floats(source, size), floats(target, size)
    total = _ZERO
    for i in range(size):
        total += numbers[i] * numbers[i]
    factor = length / np.float32(math.sqrt(total + _EPSILON))
    for i in range(size):
        out[i] = numbers[i] * factor


@compiled
def _rate(x):
    """Return the share of a change that is made: the sigmoid."""
    return _ONE / (_ONE + exp(-x))


@compiled
def _decay(net, head, x):
    """Return the factor of a head's state: e^(rate * softplus(x + bias))."""
    x += floats(net.decay_bias, net.num_value_heads)[head]
    softplus = max(x, _ZERO) + np.float32(math.log1p(exp(-abs(x))))
    return exp(floats(net.decay_rate, net.num_value_heads)[head] * softplus)


@compiled
def _state_at(net, slot, head):
    """Return the address of a head's state in a slot."""
    return net.states + 4 * (slot * net.num_value_heads + head) * net.key_dim * net.value_dim


@compiled
def _advance(model, net, step, row, head, is_narrowed, scratch):
    """Advance a head's state by a sequence's tokens, and write its outputs: of all tokens, or of sampled ones alone.

    The residual of sampled tokens is copied to where the last layer continues, by the first head.
    """
    key_dim, value_dim, num_heads = net.key_dim, net.value_dim, net.num_value_heads
    tiled, shared = head % net.num_key_heads, head // (num_heads // net.num_key_heads)
    key_head = tiled if net.has_tiled_values != 0 else shared
    size, keys_size = key_dim * value_dim, net.num_key_heads * key_dim
    queries, keys, mixed = scratch, scratch + 4 * key_dim, scratch + 8 * key_dim
    length = _ONE / np.float32(math.sqrt(np.float32(key_dim)))
    state = _state_at(net, row.write, head)
    before = state if row.read < 0 else _state_at(net, row.read, head)
    if row.read < 0:
        clear(state, size)
    sampled = integers(step.sampled, step.num_sampled)
    place = 0
    while is_narrowed != 0 and place < step.num_sampled and sampled[place] < row.first_token:
        place += 1
    for index in range(row.num_tokens):
        token = row.first_token + index
        query = step.channels + 4 * (token * net.qkv.num_outputs + key_head * key_dim)
        values = step.channels + 4 * (token * net.qkv.num_outputs + 2 * keys_size + head * value_dim)
        _scale_to(length, query, queries, key_dim)
        _scale_to(_ONE, query + 4 * keys_size, keys, key_dim)
        rates = floats(step.rates + 8 * token * num_heads, 2 * num_heads)
        decay, rate = _decay(net, head, rates[num_heads + head]), _rate(rates[head])
        advance_state(before, state, key_dim, value_dim, keys, queries, values, mixed, decay, rate)
        before = state
        if index + 1 == row.early_end:
            copy(state, _state_at(net, row.early_slot, head), size)
        if index + 1 == row.late_end:
            copy(state, _state_at(net, row.late_slot, head), size)
        target = token
        if is_narrowed != 0:
            if place == step.num_sampled or sampled[place] != token:
                continue
            target, hidden = place, model.hidden_size
            if head == 0:
                copy(step.residual + 4 * token * hidden, step.sampled_residual + 4 * place * hidden, hidden)
            place += 1
        out = step.attended + 4 * (target * num_heads + head) * value_dim
        normalise(mixed, net.norm, out, 1, value_dim, model.epsilon)
        gate(step.gates + 4 * (token * num_heads + head) * value_dim, out, out, value_dim)


@compiled
def _advance_phase(model, net, step, is_narrowed, phase, scratch):
    """Execute one thread's part of the states of all sequences and heads."""
    rows = view(step.state_rows, step.num_state_rows, STATE_ROW)
    num_heads = net.num_value_heads
    num_chunks = rows.size * num_heads
    chunk = take(phase)
    while chunk < num_chunks:
        _advance(model, net, step, rows[chunk // num_heads], chunk % num_heads, is_narrowed, scratch)
        finish(phase)
        chunk = take(phase)
    wait(phase, num_chunks)


@kernel
def mix_states(model_at, layer_at, step_at, inputs, is_narrowed, phase, scratch, codes):
    """Execute one thread's part of a layer's mixer, without its last projection: two phases."""
    model, layer, step = view(model_at, 1, MODEL)[0], view(layer_at, 1, LAYER)[0], view(step_at, 1, STEP)[0]
    net = view(layer.recurrent, 1, RECURRENT)[0]
    _project_phase(net, step, inputs, phase, scratch, codes)
    _advance_phase(model, net, step, is_narrowed, phase + PHASE_BYTES, scratch)
