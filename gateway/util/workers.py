"""Workers: the threads that do the long computations of requests beside the event loop.

They are daemon threads, unlike those of `concurrent.futures`: a process that ends does not wait for work that hangs.
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
    """A bounded number of threads and of jobs that wait for them; threads start with the first jobs."""

    def __init__(
        self,
        num_threads: int = DEFAULT_THREADS,
        *,
        name: str,
        max_waiting: int = DEFAULT_MAX_WAITING,
        initializer: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`initializer` runs first in each thread; `max_waiting` bounds `run`, not `submit`."""
        self._num_threads = num_threads
        self._max_waiting = max_waiting
        self._name = name
        self._initializer = initializer
        self._clock = clock
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._num_open = 0
        """Jobs that wait or run."""
        self._job_s = 0.0
        """How long a job takes, smoothed."""
        self._is_closed = False

    @property
    def num_waiting(self) -> int:
        """Jobs that no thread has begun, at least."""
        return max(0, self._num_open - self._num_threads)

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns or raises. Raises Shed (`overload`) when too many jobs wait already.

        Cancelled while it waits, the job is never begun; cancelled while it runs, its result is dropped.
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
        """The future of a job, queued however many wait. Raises RuntimeError after `shutdown`."""
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
        """Take no further work. With `wait`, return once the work under way is done; without, abandon it."""
        with self._lock:
            self._is_closed = True
            if cancel_futures:
                self._cancel_waiting()
            for _ in self._threads:
                self._jobs.put(None)
        if wait:
            self.join()

    def join(self, timeout_s: float | None = None) -> None:
        """After `shutdown`: return once the work under way is done, or when the time is over."""
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
            del job  # neither its arguments nor its result live on until the next one comes

    def _do(self, future: Future[Any], work: Callable[[], Any]) -> None:
        began_at = self._clock()
        if not future.set_running_or_notify_cancel():
            self._note_done(None)
            return
        try:
            result = work()
        except BaseException as error:  # whoever waits for the job gets it
            self._note_done(self._clock() - began_at)
            future.set_exception(error)
        else:
            self._note_done(self._clock() - began_at)
            future.set_result(result)

    def _note_done(self, took_s: float | None) -> None:
        """Before the result is told: whoever hears of it finds the place free."""
        with self._lock:
            self._num_open -= 1
            if took_s is not None:
                self._job_s += _SMOOTHING * (took_s - self._job_s)


class LoopThreads(ThreadPoolExecutor):
    """An event loop's default executor that never keeps a process from ending.

    A loop accepts no other class; of this one's own threads none is ever started.
    """

    def __init__(self, *, grace_s: float = _GRACE_S) -> None:
        """`grace_s`: how long `shutdown` waits for what is under way."""
        super().__init__(1)
        self._workers = Workers(_LOOP_THREADS, name="loop")
        self._grace_s = grace_s

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See Workers."""
        return self._workers.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no further work; give what is under way a moment, and abandon it."""
        self._workers.shutdown(wait=False, cancel_futures=cancel_futures)
        if wait:
            self._workers.join(self._grace_s)
