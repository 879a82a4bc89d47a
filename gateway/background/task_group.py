"""Background tasks beside requests: each has a name, its failure is reported, and all end together.

Work that has to go on for the life of the process begins again after a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from gateway.util.doubling_pauses import Report, Work, lasting


class BackgroundTasks:
    """Background tasks of one event loop. One that fails is reported, and ends alone unless `keep` began it."""

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
        self.spawn(lasting(work, name, self._report), name)

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
