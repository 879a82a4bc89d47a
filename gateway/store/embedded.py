"""EmbeddedStore: the store in one SQLite file, for the processes of one machine; nothing else has to be installed.

One thread owns the file. Operations queue up for it, and those that wait at the same time share one transaction, so
that a busy moment costs one commit. The event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from gateway.store.base import StoreLoss, StoreUnavailable
from gateway.store.forwarding import ForwardingStore
from gateway.store.sqlite_file import SqliteFile, loss_of

R = TypeVar("R")

MAX_BATCH: Final = 128
_READS: Final = frozenset({"get", "keys", "changes", "read_log", "room"})
"""Operations that write nothing: alone in a batch they wait for no other process that writes."""
_JOIN_S: Final = 5.0


class _Job:
    """One operation and its waiter; `work` None ends the thread."""

    __slots__ = ("future", "is_read", "loop", "result", "work")

    def __init__(
        self, work: Callable[[SqliteFile], Any] | None, loop: asyncio.AbstractEventLoop, *, is_read: bool = False
    ) -> None:
        self.work = work
        self.is_read = is_read
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None


class EmbeddedStore(ForwardingStore):
    """A Store in one file, opened by the first operation, and again by the next one after a failure."""

    def __init__(
        self, path: Path, *, wall: Callable[[], float], on_damage: Callable[[str], None] = lambda _: None
    ) -> None:
        """Prepare the store; `wall` is seconds since 1970.

        `on_damage` is called, on the store's thread, for a file that is put aside.
        """
        self._path = path
        self._wall = wall
        self._on_damage = on_damage
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._file: SqliteFile | None = None
        self._is_closed = False

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        work = partial(_operate, operation, arguments, options)
        return await self._do(work, is_read=operation in _READS)

    async def aclose(self) -> None:
        """Finish what is queued and close the file."""
        self._is_closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(_Job(None, asyncio.get_running_loop()))
            await asyncio.to_thread(thread.join, _JOIN_S)

    async def _do(self, work: Callable[[SqliteFile], R], *, is_read: bool = False) -> R:
        if self._is_closed:
            raise StoreUnavailable(StoreLoss.DOWN, f"{self._path}: closed", was_sent=False)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-store", daemon=True)
            self._thread.start()
        job = _Job(work, asyncio.get_running_loop(), is_read=is_read)
        self._jobs.put(job)
        result: R = await job.future
        return result

    # The thread

    def _run(self) -> None:
        is_running = True
        while is_running:
            batch = self._next_batch()
            is_running = batch[-1].work is not None
            self._serve([job for job in batch if job.work is not None])
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next_batch(self) -> list[_Job]:
        """Return the waiting jobs, at least one; the one that ends the thread comes last."""
        batch = [self._jobs.get()]
        with suppress(Empty):
            while batch[-1].work is not None and len(batch) < MAX_BATCH:
                batch.append(self._jobs.get_nowait())
        return batch

    def _serve(self, jobs: list[_Job]) -> None:
        error: BaseException | None = None
        try:
            self._transact(jobs)
        except StoreUnavailable as lost:
            error = lost
        except sqlite3.Error as failed:
            error = StoreUnavailable(loss_of(failed), f"{self._path}: {failed}")
        except Exception as unforeseen:  # a fault of ours must reach its waiters; the thread has to live on
            error = unforeseen
        if error is not None:
            self._recover(error)
            if len(jobs) > 1 and not isinstance(error, StoreUnavailable):  # one operation's fault: the others go on
                for job in jobs:
                    self._serve([job])
                return
        for loop in {job.loop for job in jobs}:
            mine = [job for job in jobs if job.loop is loop]
            with suppress(RuntimeError):  # that loop is closed, and its waiters with it
                loop.call_soon_threadsafe(partial(_answer, mine, error))

    def _transact(self, jobs: list[_Job]) -> None:
        if self._file is None:
            self._file = SqliteFile(self._path, self._wall)
        self._file.begin(is_read=all(job.is_read for job in jobs))
        for job in jobs:
            assert job.work is not None
            job.result = job.work(self._file)
        self._file.commit()

    def _recover(self, error: BaseException) -> None:
        """Undo what is half done after a failure, and put a damaged file aside for a fresh one."""
        file, self._file = self._file, None
        inode = None
        if file is not None:
            inode = file.inode
            with suppress(sqlite3.Error):  # closing undoes what is open, too
                file.roll_back()
            file.close()
        if isinstance(error, StoreUnavailable) and error.reason is StoreLoss.CORRUPT:
            self._put_aside(inode, str(error))

    def _put_aside(self, inode: int | None, reason: str) -> None:
        with suppress(FileNotFoundError):
            if inode is not None and self._path.stat().st_ino != inode:
                return  # another process has done it already
            aside = self._path.with_name(f"{self._path.name}.damaged-{int(self._wall())}")
            os.replace(self._path, aside)
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            self._on_damage(f"{reason}; the file is now {aside}, and the store begins anew")


def _operate(operation: str, arguments: tuple[Any, ...], options: dict[str, Any], file: SqliteFile) -> Any:
    return getattr(file, operation)(*arguments, **options)


def _answer(jobs: list[_Job], error: BaseException | None) -> None:
    for job in jobs:
        if job.future.done():
            continue  # its waiter has given up
        if error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(error)
