"""Reservations: charged for what was used, once, however a request ends."""

from __future__ import annotations

import random

import pytest

from gateway.errors import QuotaExceeded, RateLimited, error_headers
from tests.gateway.admission.shared_meters import Replica, SharedMeters, Time, limited


class TestTokens:
    async def test_what_was_not_used_is_given_back(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{tokens_per_min: 1000}"))
        first = await replica.routing_request(tokens=900)
        with pytest.raises(RateLimited):
            await replica.routing_request(tokens=900)
        first.settle(100)
        time.now += 0.06
        await replica.routing_request(tokens=900)

    async def test_what_was_used_beyond_the_estimate_is_charged(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{tokens_per_min: 1000}"))
        (await replica.routing_request(tokens=100)).settle(1500)
        await replica.rest()
        assert shared.used("tokens_per_min") == 1500
        with pytest.raises(RateLimited):
            await replica.routing_request(tokens=1)

    async def test_a_long_answer_is_charged_when_it_ends(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{tokens_per_min: 1000}"))
        reservation = await replica.routing_request(tokens=100)
        time.now += 300
        reservation.settle(700)
        await replica.rest()
        assert shared.used("tokens_per_min") == 600

    async def test_a_cancelled_request_costs_nothing_and_only_once(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 10, tokens_per_min: 1000}"))
        reservation = await replica.routing_request(tokens=500)
        reservation.cancel()
        reservation.cancel()
        reservation.settle(500)
        assert not reservation.is_open
        await replica.rest()
        assert shared.used("requests_per_min") == 0
        assert shared.used("tokens_per_min") == 0
        assert replica.quota.num_in_flight == 0

    async def test_a_request_larger_than_the_limit_is_reported_so(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{tokens_per_min: 1000}"))
        with pytest.raises(RateLimited) as refused:
            await replica.routing_request(tokens=1001)
        assert refused.value.wait_s is None
        assert dict(error_headers(refused.value))[b"x-should-retry"] == b"false"
        await replica.routing_request(tokens=1000)

    async def test_counts_balance_whatever_happens(self, time: Time, shared: SharedMeters) -> None:
        rules, rng = (
            limited("{tokens_per_min: 5000, budget: {tokens_per_day: 20000}, max_in_flight: 7}"),
            random.Random(5),
        )
        replicas = [Replica(shared, time, rules, name) for name in "abc"]
        open_now, used = [], 0
        for _ in range(2500):
            replica = rng.choice(replicas)
            try:
                open_now.append(await replica.routing_request(tokens=rng.randrange(1, 60)))
            except QuotaExceeded:
                await replica.flush()
            assert len(open_now) <= 7
            while open_now and rng.random() < 0.6:
                reservation = open_now.pop(rng.randrange(len(open_now)))
                if rng.random() < 0.3:
                    reservation.cancel()
                    continue
                tokens = rng.randrange(reservation.tokens + 1)
                used += tokens
                reservation.settle(tokens)
            time.now += rng.random() * 0.1
        for reservation in open_now:
            reservation.cancel()
        for replica in replicas:
            await replica.quotas.give_all_back()
            assert not replica.faults
        assert shared.used("tokens_per_day") == used
        assert 4000 < used <= 20_000
        assert shared.held() == 0
