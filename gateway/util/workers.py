"""Workers: threads for the long computations of requests beside the event loop.

They are daemon threads, unlike those of `concurrent.futures`, so hanging work does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

from gateway.errors import Shed, ShedReason

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_THREADS: Final = max(2, min(4, os.cpu_count() or 2))
DEFAULT_MAX_WAITING: Final = 64
_SMOOTHING: Final = 0.1
_LOOP_THREADS: Final = 16
_GRACE_S: Final = 1.0

_Job = tuple[Future[Any], Callable[[], Any]]


class Workers(Executor):
    """Executor with a bounded number of threads and of waiting jobs; threads start with the first jobs."""

    def __init__(
        self,
        num_threads: int = DEFAULT_THREADS,
        *,
        name: str,
        max_waiting: int = DEFAULT_MAX_WAITING,
        initializer: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an executor without threads.

        Args:
            num_threads: Largest number of threads.
            name: Prefix of the threads' names.
            max_waiting: Bound on waiting jobs for `run`; `submit` has none.
            initializer: Called first in each thread.
            clock: Monotonic clock.
        """
        self._num_threads = num_threads
        self._max_waiting = max_waiting
        self._name = name
        self._initializer = initializer
        self._clock = clock
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._num_open = 0
        """Number of jobs that wait or run."""
        self._job_s = 0.0
        """Smoothed duration of a job, in seconds."""
        self._is_closed = False

    @property
    def num_waiting(self) -> int:
        """Lower bound on the jobs that no thread has begun."""
        return max(0, self._num_open - self._num_threads)

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` on a thread and return its result.

        A job cancelled while it waits never starts; the result of one cancelled while it runs is dropped.

        Raises:
            Shed: Too many jobs wait already (`overload`).
        """
        if self._num_open >= self._num_threads + self._max_waiting:
            wait_s = self._job_s * self.num_waiting / self._num_threads
            raise Shed(
                ShedReason.OVERLOAD,
                lane="",
                message="Too many long requests are being read here. Try again after the time in Retry-After.",
                hint="The same request at a later time, or a shorter one.",
                retry_after_s=wait_s,
                queue_depth=self.num_waiting,
                predicted_wait_s=wait_s,
            )
        return await asyncio.wrap_future(self.submit(work, *args, **kwargs))

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a job without a bound and return its future; raises RuntimeError after `shutdown`."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError(f"{self._name}: shut down, no further work is taken")
            self._num_open += 1
            self._jobs.put((future, lambda: work(*args, **kwargs)))
            if len(self._threads) < min(self._num_threads, self._num_open):
                self._start_thread()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further work; with `wait`, return once running work has ended, else abandon it."""
        with self._lock:
            self._is_closed = True
            if cancel_futures:
                self._cancel_waiting()
            for _ in self._threads:
                self._jobs.put(None)
        if wait:
            self.join()

    def join(self, timeout_s: float | None = None) -> None:
        """Return once running work has ended or the timeout is over; to be called after `shutdown`."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))

    def _start_thread(self) -> None:
        name = f"{self._name}_{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _cancel_waiting(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            if job is not None:
                job[0].cancel()
                self._num_open -= 1

    def _work(self) -> None:
        if self._initializer is not None:
            self._initializer()
        while (job := self._jobs.get()) is not None:
            self._do(*job)
            del job  # frees its arguments and result before the next job arrives

    def _do(self, future: Future[Any], work: Callable[[], Any]) -> None:
        began_at = self._clock()
        if not future.set_running_or_notify_cancel():
            self._note_done(None)
            return
        try:
            result = work()
        except BaseException as error:  # the future carries it to the caller
            self._note_done(self._clock() - began_at)
            future.set_exception(error)
        else:
            self._note_done(self._clock() - began_at)
            future.set_result(result)

    def _note_done(self, took_s: float | None) -> None:
        """Free the job's place before its result is set, so its waiter sees it free."""
        with self._lock:
            self._num_open -= 1
            if took_s is not None:
                self._job_s += _SMOOTHING * (took_s - self._job_s)


class LoopThreads(ThreadPoolExecutor):
    """Default executor for an event loop that never keeps a process from ending.

    Event loops accept only subclasses of ThreadPoolExecutor; none of the base class' own threads ever starts.
    """

    def __init__(self, *, grace_s: float = _GRACE_S) -> None:
        """Create the executor; `shutdown` waits `grace_s` seconds for running work."""
        super().__init__(1)
        self._workers = Workers(_LOOP_THREADS, name="loop")
        self._grace_s = grace_s

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a job on the daemon threads; see `Workers.submit`."""
        return self._workers.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further work, give running work a short time, and abandon the rest."""
        self._workers.shutdown(wait=False, cancel_futures=cancel_futures)
        if wait:
            self._workers.join(self._grace_s)
