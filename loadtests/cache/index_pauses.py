"""What an index of very many entries costs the event loop beside it: while it is loaded, while it grows, while it is
saved, while a third of it is replaced, and while it is dropped.

A tick is due every millisecond; how late it comes is a pause. Its own part is at most what other threads of this
process computed meanwhile: the rest is the machine's, which gave the core to somebody else, as the pauses of a loop
beside which nothing is done (`idle`) show too. While the index grows every tick also adds an entry and removes it
again, as requests do, and waits for whoever is at work in the index.
"""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from gateway.cache.index.index_file import IndexFile
from gateway.cache.index.vector_index import VectorIndex
from loadtests.cache.vector_source import Matrix
from loadtests.harness.measures import percentile, resident_bytes

T = TypeVar("T")

_TICK_S: Final = 0.001
"""A loop that counts in milliseconds makes less than one into none at all, and of waiting a race."""
_AT_ONCE: Final = 20
"""Rows added between two ticks."""
_REPLACED_AT_ONCE: Final = 2000
_IDLE_S: Final = 2.0
_MEGABYTE: Final = 1e6


@dataclass(frozen=True)
class Pauses:
    """Seconds that each tick was late, and how many of them other threads of this process computed."""

    late_s: array[float] = field(default_factory=lambda: array("d"))
    own_s: array[float] = field(default_factory=lambda: array("d"))

    async def watch(self, work: Awaitable[T], on_tick: Callable[[], object] = lambda: None) -> T:
        """The work's result."""
        task = asyncio.ensure_future(work)
        while not task.done():
            due, others_s = time.perf_counter() + _TICK_S, _others_s()
            await asyncio.sleep(_TICK_S)
            on_tick()
            late_s = max(0.0, time.perf_counter() - due)
            self.late_s.append(late_s)
            self.own_s.append(min(late_s, _others_s() - others_s))
        return task.result()

    def shown(self, name: str) -> dict[str, float]:
        """For the card, in ms."""
        late_ms = [late_s * 1e3 for late_s in self.late_s] or [0.0]
        return {
            f"{name}_pause_p999_ms": percentile(late_ms, 0.999),
            f"{name}_pause_max_ms": max(late_ms),
            f"{name}_own_pause_max_ms": max(self.own_s, default=0.0) * 1e3,
        }


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """Entries that go, and vectors of those that come in their place."""

    gone: list[bytes]
    rows: Matrix


async def measured_pauses(
    path: Path, encoder_id: str, dimensions: int, context: bytes, rows: Matrix, replaced: Replaced
) -> dict[str, float]:
    """Load the snapshot at `path`, let `rows` grow into it, save it elsewhere, replace, drop all. Raises OSError when
    the file is no good."""
    copy = path.with_name(f"{path.name}.pauses")
    copy.unlink(missing_ok=True)
    os.link(path, copy)  # a save replaces the name and leaves the file
    try:
        file, loading, growing, saving = IndexFile(copy), Pauses(), Pauses(), Pauses()
        idle = Pauses()
        await idle.watch(asyncio.sleep(_IDLE_S))
        before = resident_bytes()
        index, problem = await loading.watch(file.open(encoder_id, dimensions, is_saved=True))
        if problem is not None:
            raise OSError(problem)

        def change() -> None:
            index.add(context, b"comes and goes", rows[0])
            index.remove(context, b"comes and goes")

        for begin in range(0, len(rows), _AT_ONCE):
            for place, row in enumerate(rows[begin : begin + _AT_ONCE], begin):
                index.add(context, b"new %d" % place, row)
            await asyncio.sleep(0)
        while index.needs_compaction:
            await growing.watch(file.compact(), change)
        await saving.watch(file.save())
        replacing, dropping = Pauses(), Pauses()
        peak = await _replace(index, file, context, replaced, replacing)
        await dropping.watch(_drop(index, file))
    finally:
        copy.unlink(missing_ok=True)
    shown = {**idle.shown("idle"), **loading.shown("load"), **growing.shown("growth"), **saving.shown("save")}
    shown |= {**replacing.shown("replace"), **dropping.shown("drop")}
    return {**shown, "peak_memory_mb": (peak - before) / _MEGABYTE}


async def _replace(index: VectorIndex, file: IndexFile, context: bytes, replaced: Replaced, pauses: Pauses) -> int:
    """Most bytes that the process had meanwhile: enough entries go that every segment is written again."""
    peak = resident_bytes()
    for number, (exact, row) in enumerate(zip(replaced.gone, replaced.rows, strict=True)):
        index.remove(context, exact)
        index.add(context, b"instead %d" % number, row)
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        while number % _REPLACED_AT_ONCE == 0 and index.needs_compaction:
            await pauses.watch(file.compact())
            peak = max(peak, resident_bytes())
    while index.needs_compaction:
        await pauses.watch(file.compact())
        peak = max(peak, resident_bytes())
    return peak


async def _drop(index: VectorIndex, file: IndexFile) -> None:
    """Entry by entry, as a purge does it."""
    for context, segment in index.segments():
        for number, exact in enumerate(segment.exacts()):
            index.remove(context, exact)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
    while index.needs_compaction:
        await file.compact()


def _others_s() -> float:
    """Seconds of CPU of all threads but this one."""
    return time.process_time() - time.thread_time()
