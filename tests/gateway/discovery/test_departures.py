"""Members that are no longer listed: they drain, and come back as they were."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gateway.deployments.live import LiveDeployment
from gateway.discovery.departures import Departures
from gateway.limits.permit import AdmissionRequest
from gateway.routing.snapshot import PolicySnapshot
from tests.gateway.routing.groups import GROUP, Groups


class World:
    """One member on a clock of its own, whose client notes that it was closed."""

    def __init__(self, drain_s: float = 30.0) -> None:
        self.now = 100.0
        self.departures = Departures(lambda: self.now, drain_s)
        self.snapshot: PolicySnapshot = Groups(clock=lambda: self.now).of("10.0.0.1")
        (self.live,) = self.snapshot.deployments.values()
        self.live.is_ready = True
        self.is_closed = False

        async def aclose() -> None:
            self.is_closed = True

        self.live.client = cast(Any, SimpleNamespace(aclose=aclose))

    @property
    def rule(self) -> Any:
        return self.snapshot.policy.deployments[0]

    def permit(self) -> Any:
        permit = self.live.limiter.try_acquire(AdmissionRequest(self.snapshot.lanes["interactive"]))
        assert permit is not None
        return permit


async def test_a_member_that_left_gets_no_requests_and_is_closed_after_its_last_one() -> None:
    world = World()
    permit = world.permit()
    world.departures.note_left(world.live)
    assert (world.live.is_ready, world.live.may_be_ready, world.departures.members) == (False, False, (world.live,))
    world.now += 1000.0
    await world.departures.sweep()
    assert not world.is_closed, "its response is under way"
    permit.release()
    await world.departures.sweep()
    assert (world.is_closed, world.departures.members) == (True, ())


async def test_an_idle_member_keeps_its_state_for_the_drain() -> None:
    world = World(drain_s=30.0)
    world.departures.note_left(world.live)
    world.now += 29.9
    await world.departures.sweep()
    assert not world.is_closed
    assert world.departures.recalled(world.rule) is world.live
    world.departures.note_back([world.live])
    assert (world.live.may_be_ready, world.departures.members) == (True, ())
    world.now += 100.0
    await world.departures.sweep()
    assert not world.is_closed


async def test_a_member_that_returns_while_another_is_closed_stays_open() -> None:
    world = World()
    (returning,) = Groups(clock=lambda: world.now).of("10.0.0.2").deployments.values()

    async def aclose() -> None:
        world.departures.note_back([returning])

    world.live.client = cast(Any, SimpleNamespace(aclose=aclose))
    for live in (world.live, returning):
        world.departures.note_left(live)
    world.now += 1000.0
    await world.departures.sweep()
    assert (returning.may_be_ready, world.departures.members) == (True, ())


async def test_another_model_at_the_address_is_another_deployment() -> None:
    world = World()
    world.departures.note_left(world.live)
    other = Groups(model="other").of("10.0.0.1").deployments[world.live.id]
    assert other.id == world.live.id == f"{GROUP}@10.0.0.1:8000"
    assert world.departures.recalled(other_rule(other)) is None
    world.departures.note_back([other])
    assert world.departures.members == (world.live,)


def other_rule(live: LiveDeployment) -> Any:
    return Groups(model=live.model).of("10.0.0.1").policy.deployments[0]
