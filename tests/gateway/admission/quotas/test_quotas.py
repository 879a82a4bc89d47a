"""A tenant's quota, drawn from a shared store in slices by several processes."""

from __future__ import annotations

import asyncio
import random
from collections import deque

import pytest

from gateway.errors import QuotaExceeded, RateLimited, error_headers
from tests.gateway.admission.shared_meters import Replica, SharedMeters, Time, limited


async def admitted(replica: Replica, count: int, **needs: int) -> int:
    """How many of `count` requests in a row get a reservation, which each keeps."""
    served = 0
    for _ in range(count):
        try:
            await replica.routing_request(**needs)
        except QuotaExceeded:
            continue
        served += 1
    return served


class TestRequestsPerMinute:
    def test_a_tenant_without_limits_has_no_quota(self, time: Time, shared: SharedMeters) -> None:
        quotas = Replica(shared, time, limited("{requests_per_min: 5}")).quotas
        assert quotas.by_tenant.get("free") is None
        assert quotas.by_tenant.get("nobody") is None

    async def test_one_process_serves_the_limit_and_not_one_more(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 50}"))
        assert await admitted(replica, 80) == 50

    async def test_three_processes_together_serve_exactly_the_limit(self, time: Time, shared: SharedMeters) -> None:
        rules = limited("{requests_per_min: 500}")
        replicas = [Replica(shared, time, rules, name) for name in "abc"]
        served = 0
        for _ in range(400):
            served += sum(await asyncio.gather(*(admitted(replica, 1) for replica in replicas)))
            time.now += 0.004
        assert served == 500

    async def test_a_process_that_stops_requesting_gives_back_what_it_drew(
        self, time: Time, shared: SharedMeters
    ) -> None:
        rules = limited("{requests_per_min: 100}")
        busy, light = Replica(shared, time, rules, "busy"), Replica(shared, time, rules, "quiet")
        served = 0
        for _ in range(30):
            served += await admitted(light, 1)
            time.now += 0.02
        for _ in range(8):
            time.now += 0.25
            await light.flush()
            served += await admitted(busy, 40)
        assert served == 100

    async def test_no_sixty_seconds_see_more_than_the_limit(self, time: Time, shared: SharedMeters) -> None:
        rules, rng = limited("{requests_per_min: 40}"), random.Random(3)
        replicas = [Replica(shared, time, rules, name) for name in "ab"]
        served: deque[float] = deque()
        worst = total = 0
        for step in range(4000):
            time.now += rng.choice((0.0, 0.001, 0.05, 0.3))
            if step % 5 == 0:
                for replica in replicas:
                    await replica.flush()
            if await admitted(rng.choice(replicas), 1):
                served.append(time.now)
                total += 1
            while served and served[0] <= time.now - 60.0:
                served.popleft()
            worst = max(worst, len(served))
        assert worst == 40
        assert total >= 40 * (time.now - 100) / 62 * 0.9  # and hardly fewer are served than could be

    async def test_a_tenant_over_its_limit_does_not_wear_out_the_store(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 10}"))
        assert await admitted(replica, 1000) == 10
        assert shared.num_exchanges < 15

    async def test_a_busy_tenant_calls_the_store_about_once_a_second(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 1000000}"))
        for _ in range(5000):
            await replica.routing_request()
            await asyncio.sleep(0)
            time.now += 0.001
        assert shared.num_exchanges <= 40

    async def test_many_tenants_far_from_their_limits_hardly_call(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 600, tokens_per_min: 200000, max_in_flight: 40}"))
        for _ in range(300):  # five a second for a minute, each as long as a short answer
            reservation = await replica.routing_request(tokens=300)
            await replica.flush()
            time.now += 0.2
            reservation.settle(250)
            await asyncio.sleep(0)
        assert shared.num_exchanges <= 30

    async def test_the_refusal_states_when_there_is_room_again(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 2}"))
        await admitted(replica, 2)
        with pytest.raises(RateLimited) as refused:
            await replica.routing_request()
        error = refused.value
        assert (error.status, error.type, error.code) == (429, "rate_limit_error", "rate_limit_exceeded")
        assert error.wait_s is not None
        assert 59 < error.wait_s < 62
        headers = dict(error_headers(error))
        assert headers[b"x-should-retry"] == b"true"
        assert int(headers[b"retry-after"]) == 60
        time.now += error.wait_s + 0.001
        await replica.routing_request()
