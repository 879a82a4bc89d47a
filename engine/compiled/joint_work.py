"""How threads join in a piece of work, and how it ends: when all is done and everybody has left it."""

from __future__ import annotations

from engine.compiled.ahead import run_ahead
from engine.compiled.arithmetic import integers, normalise
from engine.compiled.compiler import compiled
from engine.compiled.decoding import logits_phase, run_layers
from engine.compiled.intrinsics import fetch_add, load_acquire, relax
from engine.compiled.layout import GENERATION, LAYERS_WORK, LOGITS_WORK, NUM_AWAKE, NUM_INSIDE


@compiled
def _part(model, layers, step, tickets, thread):
    """One thread's part of what is to be done."""
    if step.work == LAYERS_WORK:
        run_layers(model, layers, step, tickets, thread)
    elif step.work == LOGITS_WORK:
        logits_phase(model.head, step.hidden, step.num_tokens, step.logits, tickets)
    else:
        run_ahead(model, step, tickets, thread)


@compiled
def open_step(tickets, num_tickets, control):
    """Let whoever comes take part in what the step's record says."""
    counters = integers(tickets, num_tickets)
    for i in range(num_tickets):
        counters[i] = 0
    fetch_add(control + GENERATION, 1)


@compiled
def lead(models, layers, steps, tickets, control):
    """Do an open step, with whoever comes to help; returns when all is done and everybody has left."""
    model, step = models[0], steps[0]
    _part(model, layers, step, tickets, 0)
    fetch_add(control + GENERATION, 1)
    while load_acquire(control + NUM_INSIDE) > 0:
        relax()
    if step.work == LAYERS_WORK:
        normalise(step.residual, step.norm, step.hidden, step.num_tokens, model.hidden_size, model.epsilon)


@compiled
def help_out(models, layers, steps, tickets, control, thread, patience):
    """Take part in steps as they are opened, until none was for a while."""
    fetch_add(control + NUM_AWAKE, 1)
    waited = 0
    while waited < patience:
        generation = load_acquire(control + GENERATION)
        if generation % 2 == 0:
            waited += 1
            relax()
            continue
        fetch_add(control + NUM_INSIDE, 1)
        # Whoever closes the step looks for us behind it: open still, and it stays what it is until we leave.
        if load_acquire(control + GENERATION) == generation:
            _part(models[0], layers, steps[0], tickets, thread)
            waited = 0
        fetch_add(control + NUM_INSIDE, -1)
    fetch_add(control + NUM_AWAKE, -1)
