"""Scheduling of a thread that computes for milliseconds beside the event loop.

On a single core the thread must not preempt a dispatch of the event loop on waking (`SCHED_BATCH`). Nor must it keep
the core when the event loop wakes: a response would wait for the rest of its slice. Since Linux 6.12 a thread with a
shorter slice runs first, so this one requests a long slice. Its share of the core is unchanged.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
from typing import Final

SLICE_S: Final = 0.006
"""Slice in seconds, twice the default of Linux; a longer one waits longer for a busy core."""
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
"""System call number by machine; the C library has no wrapper before glibc 2.41."""
_ATTRIBUTES: Final = struct.Struct("IIQiIQQQ")
"""Layout of `sched_setattr(2)`: size, policy, flags, nice, priority, slice in nanoseconds, and two unused fields."""


def stay_behind() -> None:
    """Give the calling thread batch scheduling and a long slice, where the system supports it.

    Where it does not, cache misses take slightly longer.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_BATCH, 0, nice, 0, int(SLICE_S * 1e9), 0, 0)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)
