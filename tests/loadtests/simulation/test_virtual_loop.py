"""The virtual loop itself: its clock jumps, its order is fixed, and a dead end is an error."""

from __future__ import annotations

import asyncio
import time

import pytest

from loadtests.simulation.virtual_loop import NothingLeft, VirtualLoop, run_virtual


def test_an_hour_of_sleep_takes_no_time() -> None:
    async def main() -> float:
        await asyncio.sleep(3600.0)
        return asyncio.get_running_loop().time()

    began = time.monotonic()

    assert run_virtual(main()) == pytest.approx(3600.0)
    assert time.monotonic() - began < 5.0


def test_timers_fire_at_their_time_and_in_their_order() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        fired: list[tuple[str, float]] = []

        async def at(name: str, delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            fired.append((name, round(loop.time(), 6)))

        await asyncio.gather(at("c", 0.3), at("a", 0.1), at("b", 0.1), at("d", 1000.1))
        return fired

    assert run_virtual(main()) == [("a", 0.1), ("b", 0.1), ("c", 0.3), ("d", 1000.1)]


def test_timeouts_and_cancellation_work_in_virtual_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(5.0)


def test_waiting_for_what_never_comes_is_an_error_at_once() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingLeft):
        run_virtual(main())


def test_timers_that_are_called_off_neither_fire_nor_stay() -> None:
    async def main() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        fired: list[int] = []
        timers = [loop.call_later(3600.0 + number % 7, fired.append, number) for number in range(10_000)]
        for number, timer in enumerate(timers):
            if number % 100:
                timer.cancel()
        num_stored = len(loop._timers)
        await asyncio.sleep(4000.0)
        timers[0].cancel()  # its time is over: nothing happens
        assert fired == sorted(range(0, 10_000, 100), key=lambda number: number % 7), (
            "by instant, then as they were set"
        )
        return len(fired), num_stored

    num_fired, num_stored = run_virtual(main())

    assert num_fired == 100
    assert num_stored < 2_500, "a long simulation would drag along every timeout that was not needed"
