"""Threads sleep until a counter reaches what they wait for, and whoever changes it wakes them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from engine.cpu.execution.thread_pool import aligned_integers
from engine.cpu.jit.counters import change, present_count, wait_for
from engine.cpu.jit.intrinsics import HAS_FUTEX

pytestmark = pytest.mark.skipif(not HAS_FUTEX, reason="threads cannot sleep until woken on this system")


def test_a_count_differs_from_the_sleepers() -> None:
    counter = aligned_integers(1)
    counter[0] = 5 + (3 << 32)
    assert present_count(counter.ctypes.data) == 5


def test_sleepers_wake_once_the_count_is_reached_and_leave_nothing_behind() -> None:
    counter = aligned_integers(1)
    waiters = [threading.Thread(target=wait_for, args=(counter.ctypes.data, 2, 2), daemon=True) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    until_asleep(counter, len(waiters))

    change(counter.ctypes.data, 1)
    until_asleep(counter, len(waiters))  # woken by the change, they sleep again
    assert all(waiter.is_alive() for waiter in waiters)

    change(counter.ctypes.data, 1)
    for waiter in waiters:
        waiter.join(timeout=30.0)
    assert not any(waiter.is_alive() for waiter in waiters)
    assert counter[0] == 2


def test_a_count_that_is_reached_already_is_not_waited_for() -> None:
    counter = aligned_integers(1)
    wait_for(counter.ctypes.data, 0, 0)
    change(counter.ctypes.data, 1)
    change(counter.ctypes.data, -1)
    wait_for(counter.ctypes.data, 0, 0)
    assert counter[0] == 0


def until_asleep(counter: np.ndarray[tuple[int], np.dtype[np.int64]], num_waiters: int) -> None:
    deadline = threading.Event()
    for _ in range(30_000):
        if int(counter[0]) >> 32 == num_waiters:
            return
        deadline.wait(0.001)
    raise AssertionError(f"{int(counter[0]) >> 32} of {num_waiters} threads sleep")
