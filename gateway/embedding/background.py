"""Scheduling of a thread that computes for milliseconds beside the event loop.

On a single core it must neither take the core as it wakes up, in the middle of a dispatch that it should hide behind
(`SCHED_BATCH`), nor keep it when the event loop wakes up: an answer would wait for the rest of the thread's slice.
Linux 6.12 and later let a thread with a shorter slice go first, so this one asks for a long one. Its share of the core
stays what it was.
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
"""Time slice, twice Linux's default; the longer it is, the later the thread runs on a busy core."""
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
"""The C library has no function of that name before glibc 2.41."""
_ATTRIBUTES: Final = struct.Struct("IIQiIQQQ")
"""Layout of `sched_setattr(2)`: size, policy, flags, nice, priority, slice in ns, and two for other policies."""


def stay_behind() -> None:
    """Give the calling thread a long slice and low urgency; has no effect where the system does not allow it."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_BATCH, 0, nice, 0, int(SLICE_S * 1e9), 0, 0)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)
