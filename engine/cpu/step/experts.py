"""Mixture of experts within a compiled step: the choice of experts, and their products for the tokens that chose them.

An expert's tokens are gathered, so that its weights are read once. A token's sum is over its own experts in the order
of their scores, whatever other tokens chose.
"""

from __future__ import annotations

import numpy as np

from engine.cpu.gemm.arithmetic import add_times, clear, copy, exp, floats, integers, view
from engine.cpu.gemm.projections import prepared, project
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.kernel import kernel
from engine.cpu.jit.layout import EXPERT, LAYER, MODEL, STEP
from engine.cpu.jit.work_queue import CHUNK, PHASE_BYTES, chunks, finish, is_done, take, wait
from engine.cpu.step.dense import add_branch, gate_chunk

_ROUTED_TOGETHER = 8
"""Number of tokens whose scores a thread computes at once."""
_ONE = np.float32(1.0)


@compiled
def _num_picks(layer):
    """Return the number of experts that compute each token, the shared one included."""
    return layer.num_chosen + layer.has_shared_expert


@compiled
def choose_phase(layer, step, inputs, tokens, hidden, phase, scratch):
    """Execute one thread's part of the choice of experts for each token."""
    num_scores, num_picks = layer.router.num_outputs, _num_picks(layer)
    num_chunks = (tokens + _ROUTED_TOGETHER - 1) // _ROUTED_TOGETHER
    chunk = take(phase)
    while chunk < num_chunks:
        first = chunk * _ROUTED_TOGETHER
        count = min(_ROUTED_TOGETHER, tokens - first)
        project(layer.router, 0, num_scores, inputs + 4 * first * hidden, count, scratch, num_scores)
        for index in range(count):
            at = 8 * (first + index) * num_picks
            chosen = integers(step.chosen_experts + at, num_picks)
            shares = floats(step.shares + at // 2, num_picks)
            _choose(layer, floats(scratch + 4 * index * num_scores, num_scores), chosen, shares)
        finish(phase)
        chunk = take(phase)
    wait(phase, num_chunks)


@compiled
def _choose(layer, scores, chosen, shares):
    """Choose the experts of one token by the softmax of their scores, the likeliest first; the scores are used up."""
    top = scores[0]
    for expert in range(1, layer.num_experts):
        top = max(top, scores[expert])
    total = np.float32(0.0)
    for expert in range(layer.num_experts):
        scores[expert] = exp(scores[expert] - top)
        total += scores[expert]
    taken = np.float32(0.0)
    for pick in range(layer.num_chosen):
        best = 0
        for expert in range(1, layer.num_experts):
            if scores[expert] > scores[best]:
                best = expert
        chosen[pick], shares[pick] = best, scores[best] / total
        taken += shares[pick]
        scores[best] = -_ONE
    if layer.normalizes_shares != 0:
        for pick in range(layer.num_chosen):
            shares[pick] /= taken
    if layer.has_shared_expert != 0:
        chosen[layer.num_chosen] = layer.num_experts
        shares[layer.num_chosen] = _ONE / (_ONE + exp(-scores[layer.num_experts]))


@compiled
def sort_by_expert(layer, step, tokens, thread):
    """Write the picks of all tokens in the order of their experts to a thread's own memory.

    The memory holds the first place of each expert, and the end, followed by the picks: token * picks + pick. Behind
    them lies a copy of the choices: a thread that comes late may read them while the next layer writes its own, and
    whatever it reads must stay consistent until it learns that this layer is over.
    """
    num_experts, num_picks = layer.num_experts + layer.has_shared_expert, _num_picks(layer)
    size = num_experts + 1 + tokens * num_picks
    at = step.expert_rows + 8 * thread * step.expert_rows_size
    rows, chosen = integers(at, size), integers(at + 8 * size, tokens * num_picks)
    # Loops, as Numba compiles checks of shapes for slices.
    choices = integers(step.chosen_experts, tokens * num_picks)
    for pick in range(tokens * num_picks):
        chosen[pick] = choices[pick]
    for expert in range(num_experts + 1):
        rows[expert] = 0
    for pick in range(tokens * num_picks):
        rows[chosen[pick] + 1] += 1
    for expert in range(num_experts):
        rows[expert + 1] += rows[expert]
    # Each start moves to its expert's end while picks are placed, and back behind that.
    for pick in range(tokens * num_picks):
        rows[num_experts + 1 + rows[chosen[pick]]] = pick
        rows[chosen[pick]] += 1
    for expert in range(num_experts, 0, -1):
        rows[expert] = rows[expert - 1]
    rows[0] = 0


@compiled
def expert_rows(layer, step, tokens, thread):
    """Return a thread's places of the experts and picks, as `sort_by_expert` wrote them."""
    size = layer.num_experts + layer.has_shared_expert + 1 + tokens * _num_picks(layer)
    return integers(step.expert_rows + 8 * thread * step.expert_rows_size, size)


@compiled
def gate_experts_phase(model, layer, step, inputs, tokens, thread, phase, scratch, codes):
    """Execute one thread's part of the gated states of every expert, for the tokens that chose it."""
    hidden, num_picks = model.hidden_size, _num_picks(layer)
    num_experts = layer.num_experts + layer.has_shared_expert
    rows = expert_rows(layer, step, tokens, thread)
    experts = view(layer.experts, num_experts, EXPERT)
    room = step.expert_inputs + 4 * thread * tokens * hidden
    chunk, first, gathered, ready = take(phase), 0, -1, room
    for expert in range(num_experts):
        start, count = rows[expert], rows[expert + 1] - rows[expert]
        gate_up = experts[expert].gate_up
        size = gate_up.num_outputs // 2
        num_chunks = chunks(size) if count else 0
        while chunk < first + num_chunks:
            if gathered != expert:
                for index in range(count):
                    token = rows[num_experts + 1 + start + index] // num_picks
                    copy(inputs + 4 * token * hidden, room + 4 * index * hidden, hidden)
                ready, gathered = prepared(gate_up, room, count, codes), expert
            out = step.gated + 4 * start * layer.widest_expert
            limit, gain = model.gate_limit, model.gate_gain
            gate_chunk(gate_up, model.activation, limit, gain, count, ready, chunk - first, out, scratch)
            finish(phase)
            chunk = take(phase)
        first += num_chunks
    wait(phase, first)


@compiled
def down_experts_phase(model, layer, step, tokens, thread, phase, scratch, codes):
    """Execute one thread's part of the experts' outputs, each written to the place of its pick."""
    hidden = model.hidden_size
    num_experts = layer.num_experts + layer.has_shared_expert
    rows = expert_rows(layer, step, tokens, thread)
    experts = view(layer.experts, num_experts, EXPERT)
    chunk, first, prepared_for, ready = take(phase), 0, -1, step.gated
    for expert in range(num_experts):
        start, count = rows[expert], rows[expert + 1] - rows[expert]
        down = experts[expert].down
        num_chunks = chunks(hidden) if count else 0
        while chunk < first + num_chunks:
            if prepared_for != expert:
                gated = step.gated + 4 * start * layer.widest_expert
                ready, prepared_for = prepared(down, gated, count, codes), expert
            output = (chunk - first) * CHUNK
            num_outputs = min(CHUNK, hidden - output)
            project(down, output, num_outputs, ready, count, scratch, CHUNK)
            for index in range(count):
                pick = rows[num_experts + 1 + start + index]
                target = step.expert_outputs + 4 * (pick * hidden + output)
                copy(scratch + 4 * index * CHUNK, target, num_outputs)
            finish(phase)
            chunk = take(phase)
        first += num_chunks
    wait(phase, first)


@compiled
def mix_phase(model, layer, step, residual, tokens, phase):
    """Execute one thread's part of adding each token's experts, times their shares, to the residual."""
    hidden, num_picks = model.hidden_size, _num_picks(layer)
    token = take(phase)
    while token < tokens:
        mixed = step.branch + 4 * token * hidden
        clear(mixed, hidden)
        shares = floats(step.shares + 4 * token * num_picks, num_picks)
        for pick in range(num_picks):
            outputs = step.expert_outputs + 4 * (token * num_picks + pick) * hidden
            add_times(mixed, shares[pick], outputs, hidden)
        add_branch(model, layer.mlp_output_norm, mixed, residual + 4 * token * hidden)
        finish(phase)
        token = take(phase)
    wait(phase, tokens)


@kernel
def mix_experts(model_at, layer_at, step_at, inputs, tokens, residual, thread, phase, scratch, codes):
    """Execute one thread's part of a layer's experts: four phases."""
    model, layer, step = view(model_at, 1, MODEL)[0], view(layer_at, 1, LAYER)[0], view(step_at, 1, STEP)[0]
    choose_phase(layer, step, inputs, tokens, model.hidden_size, phase, scratch)
    sort_by_expert(layer, step, tokens, thread)
    if is_done(phase + 3 * PHASE_BYTES, tokens):
        return  # the thread came late: others computed the layer, and the choices may be the next layer's
    gate_experts_phase(model, layer, step, inputs, tokens, thread, phase + PHASE_BYTES, scratch, codes)
    down_experts_phase(model, layer, step, tokens, thread, phase + 2 * PHASE_BYTES, scratch, codes)
    mix_phase(model, layer, step, residual, tokens, phase + 3 * PHASE_BYTES)
