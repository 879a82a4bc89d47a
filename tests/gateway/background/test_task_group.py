"""Tasks beside requests: a failure is reported once by name, and all of them end together."""

from __future__ import annotations

import asyncio

from gateway.background.task_group import BackgroundTasks


def group() -> tuple[BackgroundTasks, list[tuple[str, str]]]:
    reported: list[tuple[str, str]] = []
    return BackgroundTasks(lambda name, error: reported.append((name, str(error)))), reported


async def test_a_failure_is_reported_with_its_name_and_hurts_no_other() -> None:
    tasks, reported = group()
    go = asyncio.Event()
    ended: list[str] = []

    async def work() -> None:
        await go.wait()
        ended.append("work")

    async def fail() -> None:
        raise OSError("disk full")

    tasks.spawn(work(), "work")
    tasks.spawn(fail(), "fail")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (reported, tasks.num_running) == ([("fail", "disk full")], 1)
    go.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (ended, tasks.num_running) == (["work"], 0)


async def test_cancelling_waits_for_all_and_reports_no_failure() -> None:
    tasks, reported = group()
    cleaned: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(number)

    for number in range(3):
        tasks.spawn(work(number), "work")
    await asyncio.sleep(0)
    await tasks.cancel()
    assert (sorted(cleaned), reported) == ([0, 1, 2], [])
    await asyncio.sleep(0)
    assert tasks.num_running == 0


async def test_what_fails_while_it_is_cancelled_is_reported() -> None:
    tasks, reported = group()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("in the end")

    tasks.spawn(work(), "work")
    await asyncio.sleep(0)
    await tasks.cancel()
    await asyncio.sleep(0)
    assert reported == [("work", "in the end")]
