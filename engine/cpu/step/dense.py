"""Parts of a compiled step that all layers share: projections added to the residual, gates and norms of branches."""

from __future__ import annotations

import numpy as np

from engine.cpu.gemm.arithmetic import add_times, gate, gate_clamped, gate_gelu, normalise
from engine.cpu.gemm.projections import prepared, project
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.layout import SILU
from engine.cpu.jit.work_queue import CHUNK, chunks, finish, take, wait

NO_LIMIT = np.float32(0.0)
"""Limit of gates that are not clamped."""


@compiled
def read_branch(model, norm, residual, tokens, normed):
    """Return the address of a branch's inputs: the residual, normalized to `normed` if there is a norm."""
    if norm == 0:
        return residual
    normalise(residual, norm, normed, tokens, model.hidden_size, model.epsilon)
    return normed


@compiled
def add_branch(model, norm, output, residual):
    """Add a branch's output of one token, scaled, to the residual; it is normalized in place if there is a norm."""
    if norm != 0:
        normalise(output, norm, output, 1, model.hidden_size, model.epsilon)
    add_times(residual, model.branch_scale, output, model.hidden_size)


@compiled
def _add_projected(projection, factor, inputs, tokens, residual, chunk, scratch):
    """Add a factor times a chunk of a projection's outputs to the residual."""
    first, hidden = chunk * CHUNK, projection.num_outputs
    count = min(CHUNK, hidden - first)
    project(projection, first, count, inputs, tokens, scratch, CHUNK)
    for token in range(tokens):
        add_times(residual + 4 * (token * hidden + first), factor, scratch + 4 * token * CHUNK, count)


@compiled
def add_phase(projection, factor, inputs, tokens, residual, phase, scratch, codes):
    """Execute one thread's part of adding a factor times a projection to the residual."""
    inputs = prepared(projection, inputs, tokens, codes)
    num_chunks = chunks(projection.num_outputs)
    chunk = take(phase)
    while chunk < num_chunks:
        _add_projected(projection, factor, inputs, tokens, residual, chunk, scratch)
        finish(phase)
        chunk = take(phase)
    wait(phase, num_chunks)


@compiled
def write_phase(projection, inputs, tokens, out, phase, codes):
    """Execute one thread's part of a projection [tokens, outputs]."""
    inputs = prepared(projection, inputs, tokens, codes)
    num_chunks = chunks(projection.num_outputs)
    chunk = take(phase)
    while chunk < num_chunks:
        first = chunk * CHUNK
        count = min(CHUNK, projection.num_outputs - first)
        project(projection, first, count, inputs, tokens, out + 4 * first, projection.num_outputs)
        finish(phase)
        chunk = take(phase)
    wait(phase, num_chunks)


@compiled
def add_normed_phase(model, norm, branch, residual, tokens, phase):
    """Execute one thread's part of adding a branch's normalized outputs to the residual, token by token."""
    size = model.hidden_size
    token = take(phase)
    while token < tokens:
        add_branch(model, norm, branch + 4 * token * size, residual + 4 * token * size)
        finish(phase)
        token = take(phase)
    wait(phase, tokens)


@compiled
def gate_chunk(gate_up, activation, limit, gain, tokens, inputs, chunk, gated, scratch):
    """Compute a chunk of activation(gate) * up, or of a clamped SwiGLU if the limit is not 0."""
    size = gate_up.num_outputs // 2
    first = chunk * CHUNK
    count = min(CHUNK, size - first)
    ups = scratch + 4 * tokens * CHUNK
    project(gate_up, first, count, inputs, tokens, scratch, CHUNK)
    project(gate_up, size + first, count, inputs, tokens, ups, CHUNK)
    for token in range(tokens):
        out = gated + 4 * (token * size + first)
        if limit > NO_LIMIT:
            gate_clamped(scratch + 4 * token * CHUNK, ups + 4 * token * CHUNK, out, count, limit, gain)
        elif activation == SILU:
            gate(scratch + 4 * token * CHUNK, ups + 4 * token * CHUNK, out, count)
        else:
            gate_gelu(scratch + 4 * token * CHUNK, ups + 4 * token * CHUNK, out, count)


@compiled
def gate_phase(gate_up, activation, tokens, normed, gated, phase, scratch, codes):
    """Execute one thread's part of activation(gate) * up."""
    inputs = prepared(gate_up, normed, tokens, codes)
    num_chunks = chunks(gate_up.num_outputs // 2)
    chunk = take(phase)
    while chunk < num_chunks:
        gate_chunk(gate_up, activation, NO_LIMIT, NO_LIMIT, tokens, inputs, chunk, gated, scratch)
        finish(phase)
        chunk = take(phase)
    wait(phase, num_chunks)
