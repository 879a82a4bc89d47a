"""Tasks beside requests: a failure is reported once by name, and all of them end together."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from gateway.background.task_group import BackgroundTasks
from gateway.util.doubling_pauses import FIRST_PAUSE_S, LAST_PAUSE_S
from loadtests.simulation.virtual_loop import run_virtual


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


def test_lasting_work_begins_again_after_each_failure_and_pauses_longer_each_time() -> None:
    async def course() -> tuple[list[float], list[tuple[str, str]]]:
        tasks, reported = group()
        begun: list[float] = []

        async def work() -> None:
            begun.append(asyncio.get_running_loop().time())
            raise OverflowError(f"start {len(begun)}")

        tasks.keep(work, "work")
        await asyncio.sleep(4 * LAST_PAUSE_S)
        await tasks.cancel()
        return begun, reported

    begun, reported = run_virtual(course())
    pauses = [later - earlier for earlier, later in pairwise(begun)]
    assert pauses[:3] == pytest.approx([FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S])
    assert pauses[-1] == pytest.approx(LAST_PAUSE_S)
    assert reported == [("work", f"start {number}") for number in range(1, len(begun) + 1)]


def test_lasting_work_that_went_well_for_long_begins_again_soon() -> None:
    async def course() -> list[float]:
        tasks, _ = group()
        begun: list[float] = []

        async def work() -> None:
            begun.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.0 if len(begun) < 6 else LAST_PAUSE_S)
            raise OSError("again")

        tasks.keep(work, "work")
        await asyncio.sleep(3 * LAST_PAUSE_S)
        await tasks.cancel()
        return begun

    begun = run_virtual(course())
    assert begun[6] - begun[5] == pytest.approx(LAST_PAUSE_S + FIRST_PAUSE_S)


async def test_lasting_work_that_ends_by_itself_is_over() -> None:
    tasks, reported = group()

    async def work() -> None:
        pass

    tasks.keep(work, "work")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (tasks.num_running, reported) == (0, [])
