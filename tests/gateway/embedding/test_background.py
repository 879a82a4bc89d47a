"""What the kernel is given of a thread that computes beside the event loop, and that nothing else is changed."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import threading

import pytest

from gateway.embedding.background import SLICE_S, stay_behind

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
_ATTRIBUTES = struct.Struct("IIQiIQQQ")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems are asked for nothing")


def in_a_thread(nice: int) -> tuple[int, int, int]:
    """Policy, nice value and slice (in nanoseconds) of a thread that stays behind."""
    notified: list[tuple[int, int, int]] = []

    def run() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        stay_behind()
        buffer = ctypes.create_string_buffer(_ATTRIBUTES.size)
        ctypes.CDLL(None).syscall(_SCHED_GETATTR[platform.machine()], 0, buffer, _ATTRIBUTES.size, 0)
        notified.append(
            (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), _ATTRIBUTES.unpack(buffer.raw)[5])
        )

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return notified[0]


def test_it_yields_to_who_wakes_up_and_keeps_its_nice_value() -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0) + 1
    assert in_a_thread(nice)[:2] == (os.SCHED_BATCH, nice)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER, "the other threads stay what they are"


def test_its_slice_is_longer_than_that_of_the_event_loop() -> None:
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    if release < (6, 12) or platform.machine() not in _SCHED_GETATTR:
        pytest.skip("this kernel has one slice for all")
    assert in_a_thread(os.getpriority(os.PRIO_PROCESS, 0))[2] == int(SLICE_S * 1e9)
