"""Requests in flight: one limit over all processes, and units that move to who needs them."""

from __future__ import annotations

from gateway.errors import RateLimited
from tests.gateway.admission.quotas.test_quotas import admitted
from tests.gateway.admission.shared_meters import Replica, SharedMeters, Time, limited


class TestInFlight:
    async def test_processes_share_the_limit_exactly(self, time: Time, shared: SharedMeters) -> None:
        rules = limited("{max_in_flight: 20}")
        replicas = [Replica(shared, time, rules, name) for name in "abc"]
        held = []
        for _ in range(30):
            for replica in replicas:
                try:
                    held.append(await replica.routing_request())
                except RateLimited as error:
                    assert error.limit == "max_in_flight"  # noqa: PT017
                await replica.flush()
            time.now += 0.05
        assert len(held) == 20
        held.pop().settle(0)
        time.now += 0.06
        assert sum([await admitted(replica, 2) for replica in replicas]) == 1

    async def test_what_is_free_moves_to_who_needs_it(self, time: Time, shared: SharedMeters) -> None:
        rules = limited("{max_in_flight: 12}")
        one, two = Replica(shared, time, rules, "one"), Replica(shared, time, rules, "two")
        first = [await one.routing_request() for _ in range(12)]
        assert await admitted(two, 1) == 0
        for reservation in first:
            reservation.settle(0)
        for _ in range(6):
            time.now += 0.3
            await one.flush()
        assert await admitted(two, 12) == 12

    async def test_a_process_that_was_killed_lets_go_by_itself(self, time: Time, shared: SharedMeters) -> None:
        rules = limited("{max_in_flight: 5}")
        dead, alive = Replica(shared, time, rules, "dead"), Replica(shared, time, rules, "alive")
        assert await admitted(dead, 9) == 5
        assert await admitted(alive, 1) == 0
        time.now += 10.1
        assert await admitted(alive, 9) == 5

    async def test_a_process_that_lives_keeps_what_it_holds(self, time: Time, shared: SharedMeters) -> None:
        rules = limited("{max_in_flight: 5}")
        one, two = Replica(shared, time, rules, "one"), Replica(shared, time, rules, "two")
        await admitted(one, 5)
        for _ in range(200):
            time.now += 0.3
            await one.flush()
        assert await admitted(two, 1) == 0
        assert shared.held() == 5
