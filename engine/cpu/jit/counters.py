"""Counters by which threads wait for each other: a wait spins for a moment, then sleeps until the counter changes.

A thread that spins takes its core away from the thread that it waits for whenever the system runs both on one core. A
counter is an int64: the count in its lower half, and in the upper half the number of threads asleep.
"""

from __future__ import annotations

from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.intrinsics import fetch_add, futex_wait, futex_wake, load_acquire, relax

_SLEEPER = 1 << 32
_COUNT = _SLEEPER - 1
_PATIENCE = 2000
"""Number of spins before a thread sleeps: some tens of microseconds.

The longest chunk of a prompt takes as long, and a thread that another process displaces is away for milliseconds.
"""


@compiled
def present_count(counter):
    """Return the present count."""
    return load_acquire(counter) & _COUNT


@compiled
def change(counter, amount):
    """Add to a count that stays positive, and wake all threads that sleep until it changes."""
    before = fetch_add(counter, amount)
    if before >= _SLEEPER:
        futex_wake(counter, before >> 32)


@compiled
def sleep(counter, seen):
    """Sleep until the count is no longer the one that was seen; a signal may end the sleep early."""
    fetch_add(counter, _SLEEPER)
    futex_wait(counter, seen)
    fetch_add(counter, -_SLEEPER)


@compiled
def wait_for(counter, least, most):
    """Wait until a count is at least `least` and at most `most`."""
    spins, found = 0, present_count(counter)
    while found < least or found > most:
        if spins < _PATIENCE:
            spins += 1
            relax()
        else:
            sleep(counter, found)
        found = present_count(counter)
