"""The delay of the event loop's timers, in virtual time."""

from __future__ import annotations

import asyncio

from gateway.telemetry.lag import LagMeter
from loadtests.simulation.virtual_loop import run_virtual


def test_a_loop_on_time_has_no_lag_and_the_worst_is_taken_once() -> None:
    async def main() -> None:
        ticks: list[float] = []
        meter = LagMeter(asyncio.get_running_loop(), interval_s=0.1, on_tick=ticks.append)
        meter.start()
        await asyncio.sleep(0.35)
        assert len(ticks) == 3
        assert meter.take_worst_s() < 0.001
        assert meter.late_s < 0.003
        meter.stop()
        meter.stop()
        await asyncio.sleep(1.0)
        assert len(ticks) == 3

    run_virtual(main())


class LateLoop:
    """A loop whose timers fire when the test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, object]] = []

    def get_debug(self) -> bool:
        return False

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: object) -> asyncio.TimerHandle:
        self.timers.append((when, callback))
        return asyncio.TimerHandle(when, lambda: None, (), self)  # type: ignore[arg-type]

    def fire(self, now: float) -> None:
        self.now = now
        _, callback = self.timers.pop()
        callback()  # type: ignore[operator]


def test_delays_add_up_and_the_worst_since_the_last_look_is_reported() -> None:
    loop = LateLoop()
    meter = LagMeter(loop, interval_s=0.1)  # type: ignore[arg-type]
    meter.start()
    loop.fire(0.4)
    loop.fire(0.6)
    assert round(meter.late_s, 6) == 0.4
    assert round(meter.take_worst_s(), 6) == 0.3
    assert meter.take_worst_s() == 0.0
