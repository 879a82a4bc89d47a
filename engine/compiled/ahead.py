"""Logits of the tokens that come behind the chosen ones, by a model's prediction heads; carried out together."""

from __future__ import annotations

from engine.compiled.arithmetic import add_scaled, normalise, project
from engine.compiled.compiler import compiled
from engine.compiled.decoding import gate_phase, logits_phase
from engine.compiled.tickets import CHUNK, PHASE_BYTES, chunks, finish, take, wait

AHEAD_PHASES = 3


@compiled
def _read(model, step, inputs):
    """Hidden states and embeddings, each normed, side by side for each token."""
    size = model.hidden_size
    for token in range(step.num_tokens):
        at, of_token = inputs + 8 * token * size, 4 * token * size
        normalise(step.hidden + of_token, model.ahead.hidden_norm, at, 1, size, model.epsilon)
        normalise(step.embedded + of_token, model.ahead.token_norm, at + 4 * size, 1, size, model.epsilon)


@compiled
def _states_chunk(model, step, chunk):
    """A chunk of the heads' states of every token: projected, with a share of the hidden state added."""
    size, down = model.hidden_size, model.ahead.down
    first = chunk * CHUNK
    count = min(CHUNK, down.num_outputs - first)
    found = step.ahead_states + 4 * first
    project(down, first, count, step.ahead_gated, step.num_tokens, found, down.num_outputs)
    for token in range(step.num_tokens):
        source = step.hidden + 4 * (token * size + first % size)
        add_scaled(found + 4 * token * down.num_outputs, model.ahead.skip + 4 * first, source, count)


@compiled
def run_ahead(model, step, tickets, thread):
    """One thread's part."""
    ahead, tokens, size = model.ahead, step.num_tokens, model.hidden_size
    num_states = tokens * ahead.num_heads
    normed = step.normed + 4 * thread * max(2 * tokens, num_states) * size
    scratch = step.scratch + 4 * thread * step.scratch_size
    phase = tickets
    _read(model, step, normed)
    gate_phase(ahead.gate_up, tokens, normed, step.ahead_gated, phase, scratch)
    phase += PHASE_BYTES
    num_chunks = chunks(ahead.down.num_outputs)
    chunk = take(phase)
    while chunk < num_chunks:
        _states_chunk(model, step, chunk)
        finish(phase)
        chunk = take(phase)
    wait(phase, num_chunks)
    phase += PHASE_BYTES
    for state in range(num_states):
        at, norm = 4 * state * size, ahead.norms + 4 * (state % ahead.num_heads) * size
        normalise(step.ahead_states + at, norm, normed + at, 1, size, model.epsilon)
    logits_phase(model.head, normed, num_states, step.logits, phase)
