"""What an index of very many entries costs the event loop beside it: while it is loaded, while it grows, while it is
saved.

A tick is due every half millisecond; how late it comes is a pause. While the index grows every tick also adds an entry
and removes it again, as requests do, and waits for whoever is at work in the index.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from gateway.cache.index_file import IndexFile
from loadtests.measures import percentile
from loadtests.vector_source import Matrix

T = TypeVar("T")

_TICK_S: Final = 0.0005
_AT_ONCE: Final = 20
"""Rows added between two ticks."""


@dataclass(frozen=True)
class Pauses:
    """Seconds that each tick was late."""

    late_s: list[float] = field(default_factory=list)

    async def watch(self, work: Awaitable[T], on_tick: Callable[[], object] = lambda: None) -> T:
        """The work's result."""
        task = asyncio.ensure_future(work)
        while not task.done():
            due = time.perf_counter() + _TICK_S
            await asyncio.sleep(_TICK_S)
            on_tick()
            self.late_s.append(max(0.0, time.perf_counter() - due))
        return task.result()

    def shown(self, name: str) -> dict[str, float]:
        """For the card, in ms."""
        late_ms = [late_s * 1e3 for late_s in self.late_s] or [0.0]
        return {f"{name}_pause_p999_ms": percentile(late_ms, 0.999), f"{name}_pause_max_ms": max(late_ms)}


async def measured_pauses(
    path: Path, encoder_id: str, dimensions: int, context: bytes, rows: Matrix
) -> dict[str, float]:
    """Load the snapshot at `path`, let `rows` grow into it, save it elsewhere. Raises OSError when it is no good."""
    copy = path.with_name(f"{path.name}.pauses")
    copy.unlink(missing_ok=True)
    os.link(path, copy)  # a save replaces the name and leaves the file
    try:
        file, loading, growing, saving = IndexFile(copy, dimensions=dimensions), Pauses(), Pauses(), Pauses()
        index, problem = await loading.watch(file.load(encoder_id))
        if problem is not None:
            raise OSError(problem)

        def change() -> None:
            index.add(context, b"comes and goes", rows[0])
            index.remove(b"comes and goes")

        for begin in range(0, len(rows), _AT_ONCE):
            for place, row in enumerate(rows[begin : begin + _AT_ONCE], begin):
                index.add(context, b"new %d" % place, row)
            await asyncio.sleep(0)
        while index.needs_moving:
            await growing.watch(file.settle(), change)
        await saving.watch(file.save())
    finally:
        copy.unlink(missing_ok=True)
    return {**loading.shown("load"), **growing.shown("growth"), **saving.shown("save")}
