"""A piece of work cut into phases of chunks, which threads take as they come."""

from __future__ import annotations

from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.intrinsics import fetch_add, load_acquire, relax
from engine.cpu.jit.layout import LINE

PHASE_BYTES = 2 * LINE
"""Of a phase's two counters: chunks taken and chunks done, each in a line of its own."""
_DONE = LINE
CHUNK = 32
"""Outputs of a projection that are computed at a time."""


@compiled
def take(phase):
    """The number of a chunk nobody else has taken; from the number of chunks on there is none."""
    return fetch_add(phase, 1)


@compiled
def finish(phase):
    """Say that a chunk is done."""
    fetch_add(phase + _DONE, 1)


@compiled
def wait(phase, num_chunks):
    """Until all chunks are done."""
    while load_acquire(phase + _DONE) < num_chunks:
        relax()


@compiled
def chunks(size):
    """How many chunks so many outputs are."""
    return (size + CHUNK - 1) // CHUNK
