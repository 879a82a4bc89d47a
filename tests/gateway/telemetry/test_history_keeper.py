"""Readings of a history, taken at their instants."""

from __future__ import annotations

import asyncio

from gateway.telemetry.history_keeper import keep_history
from gateway.telemetry.instruments import Instruments
from gateway.telemetry.window import STEP_S, History
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
