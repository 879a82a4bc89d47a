"""Threads for long computations: bounded, refused with an honest time when full, and left behind at the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.errors import Shed, ShedReason
from gateway.util.workers import LoopThreads, Workers


@contextmanager
def stuck(workers: Workers, num: int) -> Iterator[threading.Event]:
    """So many jobs of the workers wait for the event until the body ends."""
    release = threading.Event()
    for _ in range(num):
        workers.submit(release.wait)
    try:
        yield release
    finally:
        release.set()
        workers.shutdown()


async def test_work_runs_elsewhere_and_its_result_or_error_comes_back() -> None:
    workers = Workers(2, name="test")
    assert await workers.run(pow, 2, 10) == 1024
    thread = await workers.run(threading.current_thread)
    assert thread is not threading.current_thread()
    assert thread.daemon
    with pytest.raises(ZeroDivisionError):
        await workers.run(divmod, 1, 0)
    workers.shutdown()


async def test_never_more_threads_than_requested_and_none_before_there_is_work() -> None:
    workers = Workers(2, name="few")
    before = threading.active_count()
    with stuck(workers, 5):
        assert threading.active_count() == before + 2
        assert workers.num_waiting == 3


@pytest.mark.parametrize("max_waiting", [0, 1, 3])
async def test_a_full_queue_refuses_with_503_and_a_time_to_come_back(max_waiting: int) -> None:
    workers = Workers(1, name="full", max_waiting=max_waiting)
    with stuck(workers, 1 + max_waiting):
        with pytest.raises(Shed) as caught:
            await workers.run(pow, 2, 2)
        assert (caught.value.status, caught.value.reason) == (503, ShedReason.OVERLOAD)
        assert caught.value.degraded.queue_depth == max_waiting
        assert dict(caught.value.headers())[b"retry-after"] == b"1"


async def test_room_that_is_free_again_is_used_again() -> None:
    workers = Workers(1, name="again", max_waiting=0)
    release = threading.Event()
    first = asyncio.ensure_future(workers.run(release.wait))
    await asyncio.sleep(0)
    release.set()
    assert await first
    assert await workers.run(pow, 2, 2) == 4
    workers.shutdown()


async def test_what_nobody_waits_for_any_more_is_never_begun() -> None:
    workers, done = Workers(1, name="left"), threading.Event()
    with stuck(workers, 1) as release:
        waiting = asyncio.ensure_future(workers.run(done.set))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        release.set()
        assert await workers.run(pow, 2, 2) == 4
        assert not done.is_set()


async def test_nothing_is_taken_after_the_end_and_what_waited_is_called_off() -> None:
    workers = Workers(1, name="end")
    with stuck(workers, 1):
        waiting = workers.submit(pow, 2, 2)
        workers.shutdown(wait=False, cancel_futures=True)
        assert waiting.cancelled()
        with pytest.raises(RuntimeError, match="shut down"):
            workers.submit(pow, 2, 2)


async def test_a_loop_takes_them_for_its_default_and_they_end_with_a_moments_grace() -> None:
    loop, threads, release = asyncio.get_running_loop(), LoopThreads(grace_s=0.0), threading.Event()
    loop.set_default_executor(threads)
    assert await asyncio.to_thread(pow, 2, 10) == 1024
    hanging = asyncio.ensure_future(asyncio.to_thread(release.wait))
    await asyncio.sleep(0)
    threads.shutdown()
    release.set()
    assert await hanging


def test_a_process_ends_while_work_hangs() -> None:
    script = """
import asyncio, threading
from gateway.util.workers import LoopThreads, Workers
async def main():
    asyncio.get_running_loop().set_default_executor(LoopThreads(grace_s=0.1))
    workers, begun = Workers(2, name="hangs"), threading.Barrier(4)
    def hang():
        begun.wait()
        threading.Event().wait()
    tasks = [asyncio.ensure_future(asyncio.to_thread(hang)), *(asyncio.ensure_future(workers.run(hang)) for _ in "ab")]
    await asyncio.to_thread(begun.wait)
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=30, check=False).returncode == 0
