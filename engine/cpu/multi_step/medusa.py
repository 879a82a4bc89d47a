"""Logits of the tokens that follow the chosen ones, computed by prediction heads on all threads."""

from __future__ import annotations

from engine.cpu.gemm.arithmetic import add_scaled, copy, embed, floats, integers, normalise, view
from engine.cpu.gemm.projections import project
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.kernel import kernel
from engine.cpu.jit.layout import MODEL, SILU, STEP
from engine.cpu.jit.work_queue import CHUNK, PHASE_BYTES, chunks, finish, take, wait
from engine.cpu.multi_step.argmax import largest, likeliest
from engine.cpu.step.decoding import logits_phase
from engine.cpu.step.dense import gate_phase

AHEAD_PHASES = 3


@compiled
def _read(model, hidden, embedded, tokens, inputs):
    """Write the normalized hidden state and embedding of each token side by side into `inputs`."""
    size = model.hidden_size
    for token in range(tokens):
        at, of_token = inputs + 8 * token * size, 4 * token * size
        normalise(hidden + of_token, model.ahead.hidden_norm, at, 1, size, model.epsilon)
        normalise(embedded + of_token, model.ahead.token_norm, at + 4 * size, 1, size, model.epsilon)


@compiled
def _states_chunk(model, step, hidden, tokens, chunk):
    """Compute a chunk of the heads' states of every token: a projection plus a share of the hidden state."""
    size, down = model.hidden_size, model.ahead.down
    first = chunk * CHUNK
    count = min(CHUNK, down.num_outputs - first)
    found = step.ahead_states + 4 * first
    project(down, first, count, step.ahead_gated, tokens, found, down.num_outputs)
    for token in range(tokens):
        source = hidden + 4 * (token * size + first % size)
        add_scaled(found + 4 * token * down.num_outputs, model.ahead.skip + 4 * first, source, count)


@compiled
def _run(model, step, hidden, tokens, logits, normed, scratch, codes, work_queue):
    """Compute one thread's part of the heads' logits for `tokens` tokens.

    The buffers `normed`, `scratch` and `codes` belong to this thread.
    """
    ahead, size = model.ahead, model.hidden_size
    num_states = tokens * ahead.num_heads
    phase = work_queue
    _read(model, hidden, step.embedded, tokens, normed)
    gate_phase(ahead.gate_up, SILU, tokens, normed, step.ahead_gated, phase, scratch, codes)
    phase += PHASE_BYTES
    num_chunks = chunks(ahead.down.num_outputs)
    chunk = take(phase)
    while chunk < num_chunks:
        _states_chunk(model, step, hidden, tokens, chunk)
        finish(phase)
        chunk = take(phase)
    wait(phase, num_chunks)
    phase += PHASE_BYTES
    for state in range(num_states):
        at, norm = 4 * state * size, ahead.norms + 4 * (state % ahead.num_heads) * size
        normalise(step.ahead_states + at, norm, normed + at, 1, size, model.epsilon)
    logits_phase(model, normed, num_states, logits, phase, codes)


@compiled
def run_ahead(model, step, work_queue, thread):
    """Compute one thread's part of the heads' logits behind the tokens of a step."""
    tokens, size = step.num_tokens, model.hidden_size
    normed = step.normed + 4 * thread * max(2 * tokens, tokens * model.ahead.num_heads) * size
    scratch, codes = step.scratch + 4 * thread * step.scratch_size, step.codes + thread * step.codes_size
    _run(model, step, step.hidden, tokens, step.logits, normed, scratch, codes, work_queue)


@compiled
def is_stop(step, token):
    """Return whether a token ends its sequence."""
    stops = integers(step.stops, step.num_stops)
    for stop in stops:  # noqa: SIM110 - a generator cannot be compiled
        if stop == token:
            return True
    return False


@compiled
def _choose(model, step, normed):
    """Choose the most likely token behind the accepted drafts of each row; return whether the heads are to run.

    The token's hidden state and embedding are copied to the buffers that the heads read. Every thread computes this,
    because waiting for one thread would take longer.
    """
    size, vocabulary = model.hidden_size, model.head.num_outputs
    starts, chosen = integers(step.row_starts, step.num_head_rows + 1), integers(step.chosen, step.num_head_rows)
    taken = integers(step.taken, step.num_head_rows)
    token_ids, sampled = integers(step.token_ids, step.num_tokens), integers(step.sampled, step.num_sampled)
    goes_on = False
    for row in range(step.num_head_rows):
        place = starts[row]
        token = largest(floats(step.logits + 4 * place * vocabulary, vocabulary))
        while token >= 0 and place + 1 < starts[row + 1] and token_ids[sampled[place + 1]] == token:
            place += 1
            token = largest(floats(step.logits + 4 * place * vocabulary, vocabulary))
        if token < 0:
            taken[row] = -1
            return False
        taken[row] = place - starts[row]
        goes_on |= not is_stop(step, token)
        chosen[row] = token
        copy(normed + 4 * place * size, step.head_inputs + 4 * row * size, size)
        target = step.embedded + 4 * row * size
        embed(step.embedding, step.embedding_bytes, token, model.embedding_scale, target, size)
    return goes_on


@compiled
def run_in_step(model, step, normed, work_queue, thread):
    """Compute one thread's part of the predictions behind a step that has just been computed.

    `normed` holds the normalized hidden states of that step.
    """
    num_rows, num_heads, size = step.num_head_rows, model.ahead.num_heads, model.hidden_size
    if not _choose(model, step, normed):
        if thread == 0:
            integers(step.predicted, 1)[0] = -1
        return
    if step.runs_heads == 0:
        if thread == 0:
            integers(step.predicted, 1)[0] = 0
        return
    own = step.head_normed + 4 * thread * max(2, num_heads) * num_rows * size
    scratch, codes = step.scratch + 4 * thread * step.scratch_size, step.codes + thread * step.codes_size
    _run(model, step, step.head_inputs, num_rows, step.ahead_logits, own, scratch, codes, work_queue)
    if thread == 0:
        predicted = integers(step.predicted, 2 * num_rows * num_heads).reshape((2, num_rows, num_heads))
        shape = num_rows, num_heads, model.head.num_outputs
        likeliest(floats(step.ahead_logits, shape[0] * shape[1] * shape[2]).reshape(shape), predicted[0], predicted[1])


@kernel
def run_heads(model_at, step_at, normed, work_queue, thread):
    """Compute one thread's part of the heads: behind a step's `normed` states, or of AHEAD_WORK if that is 0."""
    model, step = view(model_at, 1, MODEL)[0], view(step_at, 1, STEP)[0]
    if normed != 0:
        run_in_step(model, step, normed, work_queue, thread)
    else:
        run_ahead(model, step, work_queue, thread)
