"""Threads that help with compiled steps. They look for the next one for a moment, then sleep until they are called."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cpu.execution.joint_work import hang, lead, open_step, send_home, serve
from engine.cpu.jit.layout import BELL_BYTES, CONTROL_BYTES, LAYER, LINE, MODEL, ROUNDS, STEP

logger = logging.getLogger(__name__)

_PATIENCE = 1000
"""Looks for the next piece of work before a helper goes to sleep: some tens of microseconds."""

Records = npt.NDArray[Any]


class ThreadPool:
    """The thread that asks, and helpers beside it. One piece of work at a time."""

    def __init__(
        self, models: Records, layers: Records, steps: Records, rounds: Records, tickets: npt.NDArray[np.int64]
    ) -> None:
        """Arrays of layout's records, which stay where they are, and the phases' counters."""
        self._work = (models, layers, steps)
        self._rounds = rounds
        self._tickets = tickets
        self._control = aligned_integers(CONTROL_BYTES // 8)
        self._bells: list[npt.NDArray[np.int64]] = []
        self._addresses = (tickets.ctypes.data, self._control.ctypes.data)
        self._bell_addresses = np.zeros(0, dtype=np.int64)
        self._bells_at = self._bell_addresses.ctypes.data
        self._num_helpers = self._num_started = 0
        self._is_closed = False

    @property
    def max_threads(self) -> int:
        """That may take part: one that is not wanted any more may still look for work for a moment."""
        return self._num_started + 1

    @property
    def num_threads(self) -> int:
        """That are wanted."""
        return self._num_helpers + 1

    def resize(self, num_threads: int) -> None:
        """Take part with so many; more helpers are started when they are first wanted, and none after the end."""
        if self._is_closed:
            return
        while len(self._bells) < num_threads - 1 and self._start():
            pass
        self._num_helpers = min(num_threads - 1, len(self._bells))

    def run(self) -> None:
        """Do what the step's record says, and the rounds that follow."""
        tickets, control = self._addresses
        helpers = control, self._bells_at, self._num_helpers
        open_step(tickets, self._tickets.size, *helpers)
        lead(*self._work, self._rounds, tickets, self._tickets.size, *helpers)

    def close(self) -> None:
        """Send the helpers home."""
        self._is_closed = True
        send_home(self._addresses[1], self._bells_at, len(self._bells))
        self._bells = []
        self._num_helpers = 0

    def _start(self) -> bool:
        """One more helper, unless there is nothing here that it could sleep on."""
        bell = aligned_integers(BELL_BYTES // 8)
        if not hang(bell.ctypes.data):
            logger.warning("the system has no unnamed semaphores: steps are computed on one thread")
            return False
        self._num_started += 1
        arguments = (self._work, self._tickets, self._control, bell, self._num_started)
        threading.Thread(target=_help, args=arguments, name="compiled-step", daemon=True).start()
        self._bells.append(bell)
        self._bell_addresses = np.array([known.ctypes.data for known in self._bells], dtype=np.int64)
        self._bells_at = self._bell_addresses.ctypes.data
        return True


def prepare() -> None:
    """Have everything compiled, or read from disk; takes seconds the first time on a machine."""
    nothing = np.zeros(1, dtype=MODEL), np.zeros(0, dtype=LAYER), np.zeros(1, dtype=STEP)
    tickets, control, bell = (aligned_integers(size // 8) for size in (LINE, CONTROL_BYTES, BELL_BYTES))
    at, bells = control.ctypes.data, np.array([bell.ctypes.data])
    rounds = np.zeros(1, dtype=ROUNDS)
    open_step(tickets.ctypes.data, tickets.size, at, bells.ctypes.data, 0)
    lead(*nothing, rounds, tickets.ctypes.data, tickets.size, at, bells.ctypes.data, 0)
    hang(bell.ctypes.data)
    send_home(at, bells.ctypes.data, 1)
    _help(nothing, tickets, control, bell, 1)


def _help(
    work: tuple[Records, Records, Records], tickets: Records, control: Records, bell: Records, thread: int
) -> None:
    """A helper's thread; it holds on to all memory that it looks at."""
    serve(*work, tickets.ctypes.data, control.ctypes.data, bell.ctypes.data, thread, _PATIENCE)


def aligned_integers(count: int) -> npt.NDArray[np.int64]:
    """Zeros that begin with a line of their own."""
    room = np.zeros(count + LINE // 8, dtype=np.int64)
    start = -room.ctypes.data % LINE // 8
    return room[start : start + count]
