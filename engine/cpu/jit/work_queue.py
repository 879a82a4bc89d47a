"""Work queue of a step: phases of chunks, which threads take as they become free."""

from __future__ import annotations

from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.counters import change, wait_for
from engine.cpu.jit.intrinsics import fetch_add
from engine.cpu.jit.layout import LINE

PHASE_BYTES = 2 * LINE
"""Size of a phase's two counters, chunks taken and chunks done, each in its own cache line."""
_DONE = LINE
CHUNK = 32
"""Number of a projection's outputs in a chunk."""


@compiled
def take(phase):
    """Return the number of the next free chunk; there is none from the number of chunks on."""
    return fetch_add(phase, 1)


@compiled
def finish(phase):
    """Count a chunk as done."""
    change(phase + _DONE, 1)


@compiled
def wait(phase, num_chunks):
    """Wait until all chunks are done."""
    wait_for(phase + _DONE, num_chunks, num_chunks)


@compiled
def is_done(phase, num_chunks):
    """Return whether all chunks are done; what the thread read before stays in front of this."""
    return fetch_add(phase + _DONE, 0) % (1 << 32) == num_chunks


@compiled
def chunks(size):
    """Return the number of chunks of `size` outputs."""
    return (size + CHUNK - 1) // CHUNK
