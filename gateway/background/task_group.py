"""Background tasks beside requests: each has a name, its failure is reported, and all end together.

Work that has to go on for the life of the process is *kept*: after a failure it is started again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

Report = Callable[[str, BaseException], None]
"""Callback with the name of a task and its failure."""
Work = Callable[[], Coroutine[Any, Any, None]]
"""Function that begins some work anew."""
Keep = Callable[[Work, str], None]
"""Start of work in the background, by name; it is started again whenever it fails."""

FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 60.0
"""Longest time between a failure and the next start, and how long work must run for the first pause to hold again."""


async def kept(work: Work, name: str, report: Report) -> None:
    """Do the work until it ends by itself; after a failure, report it and start again.

    The pause before a start doubles from FIRST_PAUSE_S up to LAST_PAUSE_S.
    """
    clock = asyncio.get_running_loop().time
    pause_s = FIRST_PAUSE_S
    while True:
        began_at = clock()
        try:
            await work()
            return
        except Exception as error:  # whatever it is, the rest of the process goes on
            report(name, error)
        if clock() - began_at >= LAST_PAUSE_S:
            pause_s = FIRST_PAUSE_S
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LAST_PAUSE_S)


class BackgroundTasks:
    """Background tasks of one event loop. A task that fails is reported and ends alone, unless it is kept."""

    __slots__ = ("_report", "_tasks")

    def __init__(self, report: Report) -> None:
        self._report = report
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def num_running(self) -> int:
        """Return the number of tasks that have not ended."""
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Begin; it runs until it ends by itself or `cancel`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def keep(self, work: Work, name: str) -> None:
        """Begin, and begin again whenever it fails; it runs until it ends by itself or `cancel`."""
        self.spawn(kept(work, name, self._report), name)

    async def cancel(self) -> None:
        """End all of them; returns once they are over."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(task.get_name(), error)
