"""Readings of a history, taken at their instants."""

from __future__ import annotations

import asyncio

import pytest

from gateway.telemetry.history_keeper import keep_history
from gateway.telemetry.instruments import Instruments
from gateway.telemetry.window import COARSE_STEP_S, STEP_S, History
from loadtests.simulation.virtual_loop import run_virtual


def test_a_reading_is_taken_at_each_step() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        counter = Instruments("penstock_").counter("requests_total", "", ("outcome",))
        history = History([counter], [], prefix="penstock_", wall=loop.time)
        keeping = loop.create_task(keep_history(history))
        await asyncio.sleep(STEP_S / 2)
        for _ in range(4):
            counter.labels("completed").inc(3)
            await asyncio.sleep(STEP_S)
        steps = history.series(60, frozenset({"requests_total"}))
        assert [step.total("requests_total") for step in steps if step.total("requests_total")] == [3, 3, 3, 3]
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    run_virtual(main())


def test_a_timer_that_ends_early_adds_no_reading() -> None:
    """Loops round timers down, so a reading may come some microseconds before its instant."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        history = History([], [], prefix="penstock_", wall=lambda: loop.time() * (1 - 1e-5))
        keeping = loop.create_task(keep_history(history))
        await asyncio.sleep(3 * COARSE_STEP_S + STEP_S / 2)
        taken = [reading.at for reading in history._fine]
        assert taken == [pytest.approx(STEP_S * number, abs=0.01) for number in range(1, len(taken) + 1)]
        assert len(taken) == 3 * COARSE_STEP_S / STEP_S
        assert [reading.at for reading in history._coarse] == [pytest.approx(at, abs=0.01) for at in (5, 60, 120, 180)]
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    run_virtual(main())
