"""Wakeups: a process that is woken looks at what waits in it, and a full pipe costs nothing."""

from __future__ import annotations

import asyncio
import os

from gateway.machine.wakeups import Wakeups


class Waiting:
    def __init__(self) -> None:
        self.num_checks = 0
        self.looked = asyncio.Event()

    def look_again(self) -> None:
        self.num_checks += 1
        self.looked.set()


async def test_wakes_the_process_that_is_meant() -> None:
    pipes = [os.pipe() for _ in range(2)]
    for ends in pipes:
        for end in ends:
            os.set_blocking(end, False)
    writing = [end for _, end in pipes]
    first, second = (Wakeups(reading, writing) for reading, _ in pipes)
    waiting, elsewhere, gone = Waiting(), Waiting(), Waiting()
    first.begin()
    second.begin()
    first.add(elsewhere)
    second.add(waiting)
    second.add(gone)
    second.discard(gone)
    for _ in range(100_000):  # more than the pipe takes
        first.wake(1)
    await asyncio.wait_for(waiting.looked.wait(), 5)

    assert (elsewhere.num_checks, gone.num_checks) == (0, 0)
    first.end()
    second.end()
    for ends in pipes:
        for end in ends:
            os.close(end)
