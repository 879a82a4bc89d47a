"""Threads that help with compiled steps. They look for the next one for a moment, then sleep until they are called."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.compiled.joint_work import help_out, lead, open_step
from engine.compiled.layout import CONTROL_BYTES, LAYER, LINE, MODEL, NUM_AWAKE, STEP

_PATIENCE = 1000
"""Looks for the next piece of work before a helper goes to sleep: some tens of microseconds."""


class StepTeam:
    """The thread that asks, and helpers beside it. One piece of work at a time."""

    def __init__(
        self, models: npt.NDArray[Any], layers: npt.NDArray[Any], steps: npt.NDArray[Any], tickets: Any
    ) -> None:
        """Arrays of layout's records, which stay where they are, and the phases' counters."""
        self._control = aligned_integers(CONTROL_BYTES // 8)
        self._work = (models, layers, steps)
        self._tickets = tickets
        self._calls: list[SimpleQueue[bool]] = []
        self._num_helpers = self._num_started = 0

    @property
    def max_threads(self) -> int:
        """That may take part: one that is not wanted any more may still look for work for a moment."""
        return self._num_started + 1

    def resize(self, num_threads: int) -> None:
        """Take part with so many; more helpers are started when they are first wanted."""
        while len(self._calls) < num_threads - 1:
            self._start()
        self._num_helpers = num_threads - 1

    def run(self) -> None:
        """Do what the step's record says."""
        tickets, control = self._tickets.ctypes.data, self._control.ctypes.data
        # Open before anybody is called: a helper that wakes up where this thread runs would look in vain meanwhile.
        open_step(tickets, self._tickets.size, control)
        awake = self._control[NUM_AWAKE // 8]
        if awake < self._num_helpers:
            for call in self._calls[: self._num_helpers]:
                if call.empty():
                    call.put(True)
        lead(*self._work, tickets, control)

    def close(self) -> None:
        """Send the helpers home."""
        for call in self._calls:
            call.put(False)
        self._calls = []
        self._num_helpers = 0

    def _start(self) -> None:
        call: SimpleQueue[bool] = SimpleQueue()
        self._num_started += 1
        arguments = (call, self._work, self._tickets, self._control, self._num_started)
        threading.Thread(target=_help, args=arguments, name="compiled-step", daemon=True).start()
        self._calls.append(call)


def prepare() -> None:
    """Have everything compiled, or read from disk; takes seconds the first time on a machine."""
    nothing = np.zeros(1, dtype=MODEL), np.zeros(0, dtype=LAYER), np.zeros(1, dtype=STEP)
    tickets, control = aligned_integers(LINE), aligned_integers(CONTROL_BYTES // 8)
    open_step(tickets.ctypes.data, tickets.size, control.ctypes.data)
    lead(*nothing, tickets.ctypes.data, control.ctypes.data)
    help_out(*nothing, tickets.ctypes.data, control.ctypes.data, 1, 0)


def _help(call: SimpleQueue[bool], work: Any, tickets: Any, control: Any, thread: int) -> None:
    while call.get():
        help_out(*work, tickets.ctypes.data, control.ctypes.data, thread, _PATIENCE)


def aligned_integers(count: int) -> npt.NDArray[np.int64]:
    """Zeros that begin with a line of their own."""
    room = np.zeros(count + LINE // 8, dtype=np.int64)
    start = -room.ctypes.data % LINE // 8
    return room[start : start + count]
