"""Refusals of quotas: a spent budget is another error than a rate, and each says what helps."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import BudgetSpent, error_headers
from gateway.store.meter import Period, period_bounds
from tests.gateway.admission.quotas.test_quotas import admitted
from tests.gateway.admission.shared_meters import Replica, SharedMeters, Time, limited


class TestBudgets:
    async def test_a_spent_budget_is_another_error_than_a_rate(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{budget: {tokens_per_day: 100}}"))
        await replica.routing_request(tokens=100)
        with pytest.raises(BudgetSpent) as refused:
            await replica.routing_request(tokens=1)
        error = refused.value
        assert (error.status, error.type, error.code) == (429, "insufficient_quota", "insufficient_quota")
        assert dict(error_headers(error))[b"x-should-retry"] == b"false"

    async def test_money_is_counted_to_the_billionth(self, time: Time, shared: SharedMeters) -> None:
        rules = limited("{budget: {cost_per_month: 0.001}}", prices="{prompt: 0.5, completion: 2.0}")
        replica = Replica(shared, time, rules)
        reservation = await replica.routing_request(tokens=10, nano=600_000)
        reservation.settle(10, 400_000)
        await replica.rest()
        assert shared.used("cost_per_month") == 400_000
        await replica.routing_request(nano=600_000)
        with pytest.raises(BudgetSpent, match=r"cost of 0\.001 a month"):
            await replica.routing_request(nano=1)

    async def test_a_budget_begins_anew_with_its_period(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{budget: {tokens_per_day: 100}}"))
        assert await admitted(replica, 3, tokens=50) == 2
        time.now += period_bounds(Period.DAY, time.wall())[1] - time.wall()
        assert await admitted(replica, 3, tokens=50) == 2

    async def test_what_is_under_way_is_charged_to_the_budget(self, time: Time, shared: SharedMeters) -> None:
        rules = limited("{budget: {tokens_per_day: 1000}}")
        replicas = [Replica(shared, time, rules, name) for name in "abc"]
        served = await asyncio.gather(*(admitted(replica, 10, tokens=90) for replica in replicas))
        assert sum(served) == 11
