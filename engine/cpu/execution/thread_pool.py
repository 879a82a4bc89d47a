"""Thread pool of compiled steps. Helpers spin for the next step for a moment, then sleep until woken."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cpu.execution.joint_work import lead, open_step, part_of_work, send_home, serve
from engine.cpu.jit.compiler import compile_for_integers
from engine.cpu.jit.intrinsics import HAS_FUTEX
from engine.cpu.jit.layout import CONTROL_BYTES, LINE

logger = logging.getLogger(__name__)

_PATIENCE = 1000
"""Number of spins before a helper sleeps: some tens of microseconds."""

Records = npt.NDArray[Any]


class ThreadPool:
    """Calling thread with its helpers; executes one piece of work at a time."""

    def __init__(
        self, models: Records, layers: Records, steps: Records, multi_step: Records, work_queue: npt.NDArray[np.int64]
    ) -> None:
        """Create a pool without helpers for arrays of layout's records, which must not move, and phase counters."""
        self._control = aligned_integers(CONTROL_BYTES // 8)
        self._records = (models, layers, steps, multi_step, work_queue, self._control)
        """Memory that the addresses lead to."""
        self._work = (part_of_work.address, models.ctypes.data, layers.ctypes.data, steps.ctypes.data)
        self._multi_step = multi_step.ctypes.data
        self._work_queue = work_queue
        self._addresses = (work_queue.ctypes.data, self._control.ctypes.data)
        self._num_helpers = self._num_started = 0
        self._is_closed = False

    @property
    def max_threads(self) -> int:
        """Maximum number of threads that may take part; a superfluous helper may still spin for a moment."""
        return self._num_started + 1

    @property
    def num_threads(self) -> int:
        """Number of threads in use."""
        return self._num_helpers + 1

    def resize(self, num_threads: int) -> None:
        """Set the number of threads; helpers start when first needed, and none after `close`."""
        if self._is_closed:
            return
        if num_threads > 1 and not HAS_FUTEX:
            logger.warning("threads cannot sleep until woken on this system: steps are computed on one thread")
            num_threads = 1
        while self._num_started < num_threads - 1:
            self._start()
        self._num_helpers = num_threads - 1

    def run(self) -> None:
        """Execute the step's record and the steps that follow in the same call."""
        work_queue, control = self._addresses
        open_step(work_queue, self._work_queue.size, control, self._num_helpers)
        lead(*self._work, self._multi_step, work_queue, self._work_queue.size, control, self._num_helpers)

    def close(self) -> None:
        """End the helpers."""
        self._is_closed = True
        send_home(self._addresses[1])
        self._num_helpers = 0

    def _start(self) -> None:
        """Start one more helper."""
        self._num_started += 1
        arguments = (self._records, self._work, *self._addresses, self._num_started)
        threading.Thread(target=_help, args=arguments, name="compiled-step", daemon=True).start()


def prepare() -> None:
    """Compile what every step needs, or read it from the cache; takes seconds the first time on a machine."""
    for function in (open_step, lead, send_home, serve):
        compile_for_integers(function)
    _ = part_of_work.address


def _help(records: tuple[Records, ...], work: tuple[int, ...], work_queue: int, control: int, thread: int) -> None:
    """Run a helper's thread; `records` keeps all shared memory alive."""
    serve(*work, work_queue, control, thread, _PATIENCE)


def aligned_integers(count: int) -> npt.NDArray[np.int64]:
    """Return zeros that start at a cache line."""
    room = np.zeros(count + LINE // 8, dtype=np.int64)
    start = -room.ctypes.data % LINE // 8
    return room[start : start + count]
