"""The sweep that finds deployments which hold requests and produce nothing."""

from __future__ import annotations

import asyncio

from gateway.deployments.health.ejection import EjectionRules, StallRules
from gateway.deployments.liveness import LivenessWatch
from tests.gateway.routing.snapshots import ManualClock, snapshot_of

TEXT = """schema_version: 1
deployments: [{id: a, url: 'http://a', model: m}, {id: b, url: 'http://b', model: m}]
"""


def test_only_the_silent_one_is_taken_out() -> None:
    clock = ManualClock()
    made = snapshot_of(TEXT, EjectionRules(stall=StallRules(after=4.0, least_s=2.0)), clock).deployments
    watch = LivenessWatch(made.values, clock)
    attempts = {name: live.health.begin(0.0) for name, live in made.items()}
    for attempt in attempts.values():
        attempt.expect(0.1)
    clock.now = 1.9
    watch.sweep()
    assert all(live.health.is_fit for live in made.values())
    made["b"].health.note_progress(1.9)
    clock.now = 2.1
    watch.sweep()
    assert {name: live.health.is_fit for name, live in made.items()} == {"a": False, "b": True}


def test_deployments_of_a_new_policy_are_swept_too() -> None:
    clock = ManualClock()
    rules = EjectionRules(stall=StallRules(after=4.0, least_s=2.0))
    current = [snapshot_of(TEXT, rules, clock).deployments]
    watch = LivenessWatch(lambda: current[0].values(), clock)
    current[0] = snapshot_of(TEXT, rules, clock).deployments
    current[0]["a"].health.begin(0.0).expect(0.1)
    clock.now = 3.0
    watch.sweep()
    assert not current[0]["a"].health.is_fit


async def test_after_a_stall_of_the_gateway_itself_one_sweep_is_left_out() -> None:
    clock = ManualClock()
    rules = EjectionRules(stall=StallRules(after=4.0, least_s=2.0))
    made = snapshot_of(TEXT, rules, clock).deployments
    made["a"].health.begin(0.0).expect(0.1)
    run = asyncio.create_task(LivenessWatch(made.values, clock, interval_s=0.0).run())
    await asyncio.sleep(0)
    clock.now = 3.0  # the loop stood still, and what arrived meanwhile is not read yet
    await asyncio.sleep(0)
    assert made["a"].health.is_fit
    await asyncio.sleep(0)
    assert not made["a"].health.is_fit
    run.cancel()
