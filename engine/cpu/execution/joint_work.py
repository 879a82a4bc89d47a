"""Participation of threads in a piece of work, and its end once all is done and every thread has left."""

from __future__ import annotations

from engine.cpu.gemm.arithmetic import copy, integers, normalise, view
from engine.cpu.gemm.matrix_unit import configure, release
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.counters import change, present_count, sleep, wait_for
from engine.cpu.jit.intrinsics import fetch_add, futex_wake, load_acquire, relax
from engine.cpu.jit.kernel import call_at, kernel
from engine.cpu.jit.layout import (
    GENERATION,
    IS_CLOSED,
    LAYER,
    LAYERS_WORK,
    LOGITS_WORK,
    MODEL,
    MULTI_STEP,
    NUM_AWAKE,
    NUM_INSIDE,
    STEP,
)
from engine.cpu.jit.work_queue import PHASE_BYTES
from engine.cpu.step.decoding import PHASES_PER_LAYER, logits_phase, run_layers


@kernel
def part_of_work(model_at, layers_at, step_at, work_queue, thread):
    """Execute one thread's part of the work."""
    model, step = view(model_at, 1, MODEL)[0], view(step_at, 1, STEP)[0]
    layers = view(layers_at, step.first_layer + model.num_layers, LAYER)
    codes = step.codes + thread * step.codes_size
    if step.work == LAYERS_WORK:
        if step.unit != 0:
            configure(step.unit)
        run_layers(model, layers, step, work_queue, thread)
        if step.unit != 0:
            release()
        normed = step.normed + 4 * thread * step.num_tokens * model.hidden_size
        _norm_sampled(model, step, normed)
        if thread == 0:
            copy(normed, step.hidden, step.num_sampled * model.hidden_size)
        if step.logits != 0:
            behind = work_queue + PHASE_BYTES * PHASES_PER_LAYER * model.num_layers
            logits_phase(model, normed, step.num_sampled, step.logits, behind, codes)
            if step.num_head_rows != 0:
                call_at(step.heads, (model_at, step_at, normed, behind + PHASE_BYTES, thread))
    elif step.work == LOGITS_WORK:
        logits_phase(model, step.hidden, step.num_tokens, step.logits, work_queue, codes)
    else:
        call_at(step.heads, (model_at, step_at, 0, work_queue, thread))


@compiled
def _norm_sampled(model, step, out):
    """Normalize the sampled tokens' last residuals, side by side.

    The function has one call site only: another compilation could order sums differently.
    """
    size = model.hidden_size
    sampled = integers(step.sampled, step.num_sampled)
    is_narrowed = step.num_sampled < step.num_tokens
    residual = step.sampled_residual if is_narrowed else step.residual
    for index in range(step.num_sampled):
        at = index if is_narrowed else sampled[index]
        normalise(residual + 4 * at * size, step.norm, out + 4 * index * size, 1, size, model.epsilon)


@compiled
def open_step(work_queue, queue_size, control, num_helpers):
    """Open the step for helpers, and wake as many as are missing."""
    counters = integers(work_queue, queue_size)
    for i in range(queue_size):
        counters[i] = 0
    # Opened before the wake-up: a helper that wakes on this thread's core would otherwise find nothing to do.
    fetch_add(control + GENERATION, 1)
    num_missing = num_helpers - load_acquire(control + NUM_AWAKE)
    if num_missing > 0:
        futex_wake(control + GENERATION, num_missing)


@compiled
def send_home(control):
    """End all helpers."""
    fetch_add(control + IS_CLOSED, 1)
    change(control + GENERATION, 2)


@compiled
def lead(part, model, layers, step, multi_step, work_queue, queue_size, control, num_helpers):
    """Execute an open step and those that follow it, with all helpers; return when all is done and they have left.

    Arguments are the address of `part_of_work`, and of records.
    """
    while True:
        call_at(part, (model, layers, step, work_queue, 0))
        fetch_add(control + GENERATION, 1)
        wait_for(control + NUM_INSIDE, 0, 0)
        done, further = view(step, 1, STEP)[0], view(multi_step, 1, MULTI_STEP)[0]
        if done.work != LAYERS_WORK or done.num_head_rows == 0 or further.num_left == 0:
            return
        call_at(further.follow, (model, step, multi_step))
        if further.goes_on == 0:
            return
        open_step(work_queue, queue_size, control, num_helpers)


@compiled
def _help_out(part, model, layers, step, work_queue, control, thread, seen, patience):
    """Take part in steps as they open, until none has opened for a while; return the last generation seen."""
    waited = 0
    while waited < patience:
        generation = present_count(control + GENERATION)
        if generation % 2 == 0 or generation == seen:
            waited += 1
            relax()
            continue
        fetch_add(control + NUM_INSIDE, 1)
        # The leader waits for threads inside: a step that is still open here stays valid until this thread leaves.
        if present_count(control + GENERATION) == generation:
            call_at(part, (model, layers, step, work_queue, thread))
            waited = 0
        seen = generation
        change(control + NUM_INSIDE, -1)
    return seen


@compiled
def serve(part, model, layers, step, work_queue, control, thread, patience):
    """Run a helper: take part in steps, spin for more work for a while, and sleep until one opens.

    The loop runs without the interpreter's lock, because acquiring it takes longer than the work. Arguments are the
    address of `part_of_work`, and of records.
    """
    seen = 0
    while True:
        fetch_add(control + NUM_AWAKE, 1)
        seen = _help_out(part, model, layers, step, work_queue, control, thread, seen, patience)
        fetch_add(control + NUM_AWAKE, -1)
        generation = present_count(control + GENERATION)
        if load_acquire(control + IS_CLOSED) != 0:
            return
        if generation % 2 == 0 or generation == seen:
            sleep(control + GENERATION, generation)
