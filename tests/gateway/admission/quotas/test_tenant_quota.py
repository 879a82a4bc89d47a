"""One tenant's quota in one process: without its store, and under a changed policy."""

from __future__ import annotations

import pytest

from gateway.errors import RateLimited
from tests.gateway.admission.quotas.test_quotas import admitted
from tests.gateway.admission.shared_meters import LATE, LOST, Replica, SharedMeters, Time, limited

STALE = 1.1
"""Use without the store, over the limit: a part of what others drew after this process' last exchange."""


class TestStoreLost:
    async def test_a_tenant_goes_on_within_this_process_share(self, time: Time, shared: SharedMeters) -> None:
        rules = limited("{requests_per_min: 90}")
        replicas = [Replica(shared, time, rules, name) for name in "abc"]
        for replica in replicas:
            await replica.routing_request()
        await replicas[0].flush()
        time.now += 1.0
        for replica in replicas:
            await replica.routing_request()  # each knows of three by now
        shared.loss = LOST
        time.now += 1.5
        served = [await admitted(replica, 200) for replica in replicas]
        assert all(count >= 20 for count in served)
        assert 80 <= sum(served) + 2 * len(replicas) <= 90 * STALE

    async def test_uneven_use_before_the_loss_adds_up_to_no_more_than_the_limit(
        self, time: Time, shared: SharedMeters
    ) -> None:
        rules = limited("{requests_per_min: 300}")
        busy, *others = [Replica(shared, time, rules, name) for name in "abc"]
        served = [await admitted(busy, 150), *[await admitted(other, 10) for other in others]]
        time.now += 1.5
        for replica in (busy, *others):
            await replica.flush()
            served.append(await admitted(replica, 2))
        shared.loss = LOST
        for _ in range(20):
            served += [await admitted(replica, 200) for replica in (busy, *others)]
            time.now += 2.0
        assert 280 <= sum(served) <= 300 * STALE  # with even parts it would be 350

    async def test_a_minute_after_the_loss_the_parts_become_even(self, time: Time, shared: SharedMeters) -> None:
        rules = limited("{requests_per_min: 90}")
        replicas = [Replica(shared, time, rules, name) for name in "abc"]
        for replica in (*replicas, *replicas):
            await admitted(replica, 1)
            time.now += 1.0
            await replica.flush()
        await admitted(replicas[0], 60)
        shared.loss = LOST
        for replica in replicas:
            await admitted(replica, 90)
        time.now += 121.0
        assert [await admitted(replica, 200) for replica in replicas] == [30, 30, 30]

    async def test_an_exchange_that_got_no_answer_is_repeated_and_counts_once(
        self, time: Time, shared: SharedMeters
    ) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 600}"))
        served = 0
        for step in range(200):
            shared.loss = LATE if step % 20 == 7 else LOST if step % 20 == 8 else None
            shared.is_done_when_lost = step % 40 == 7
            time.now += 0.05
            served += await admitted(replica, 2)
            await replica.flush()
        shared.loss = None
        await replica.rest()
        assert shared.used("requests_per_min") == served == 400

    async def test_the_age_of_a_repeated_answer_is_no_difference_of_the_clocks(
        self, time: Time, shared: SharedMeters
    ) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 60}"))
        served = await admitted(replica, 10)
        time.now += 1.5
        shared.loss, shared.is_done_when_lost = LATE, True
        served += await admitted(replica, 10)
        time.now += 20.0
        served += await admitted(replica, 100)
        time.now += 20.0
        shared.loss, shared.loss_after = None, LOST
        served += await admitted(replica, 100)
        assert 50 <= served <= 60 * STALE

    async def test_a_tenant_whose_policy_reports_it_is_refused(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 90, on_store_loss: refuse}"))
        shared.loss = LOST
        with pytest.raises(RateLimited, match="cannot be checked"):
            await replica.routing_request()
        shared.loss = None
        await replica.routing_request()

    async def test_a_budget_may_refuse_where_a_rate_allows(self, time: Time, shared: SharedMeters) -> None:
        rules = "{requests_per_min: 90, budget: {tokens_per_day: 100, on_store_loss: refuse}}"
        replica = Replica(shared, time, limited(rules))
        shared.loss = LOST
        with pytest.raises(RateLimited, match="tokens_per_day"):
            await replica.routing_request(tokens=1)

    async def test_in_flight_is_held_to_here_too(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{max_in_flight: 3}"))
        shared.loss = LOST
        assert await admitted(replica, 9) == 3
        refusing = Replica(shared, time, limited("{max_in_flight: 3, on_store_loss: refuse}"))
        assert await admitted(refusing, 9) == 0

    async def test_what_was_used_meanwhile_is_reported_when_it_is_back(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{tokens_per_min: 1000, budget: {tokens_per_day: 10000}}"))
        (await replica.routing_request(tokens=10)).settle(10)
        shared.loss = LOST
        for _ in range(5):
            time.now += 1.1
            (await replica.routing_request(tokens=100)).settle(80)
            await replica.flush()
        shared.loss = None
        await replica.rest()
        assert shared.used("tokens_per_min") == 410
        assert shared.used("tokens_per_day") == 410

    async def test_an_exchange_that_may_have_happened_never_frees_twice(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{tokens_per_min: 1000}"))
        await replica.routing_request(tokens=500)
        back = await replica.routing_request(tokens=500)
        back.settle(0)
        time.now += 1.5  # the slice is over: its rest will be given back
        shared.loss, shared.is_done_when_lost = LATE, True
        await replica.flush()
        shared.loss = None
        time.now += 0.5
        await replica.flush()
        assert shared.used("tokens_per_min") >= 500

    async def test_a_request_larger_than_the_share_is_not_locked_out(self, time: Time, shared: SharedMeters) -> None:
        rules = limited("{tokens_per_min: 900}")
        replicas = [Replica(shared, time, rules, name) for name in "abc"]
        for replica in (*replicas, replicas[0]):
            (await replica.routing_request(tokens=1)).cancel()
            time.now += 1.1
            await replica.flush()
        time.now += 70
        shared.loss = LOST
        assert await admitted(replicas[0], 3, tokens=400) == 1


class TestPolicyChanges:
    async def test_what_was_used_stays_used(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 10}"))
        stored = await replica.routing_request()
        assert await admitted(replica, 20) == 9
        replica.quotas.configure(limited("{requests_per_min: 15, max_in_flight: 30}"))
        time.now += 0.1
        assert await admitted(replica, 20) == 5
        stored.settle(0)
        replica.quotas.configure(limited("{max_in_flight: 30}"))
        assert await admitted(replica, 50) == 16

    async def test_a_lower_limit_holds_at_once_for_what_is_drawn_anew(self, time: Time, shared: SharedMeters) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 1000}"))
        await admitted(replica, 8)
        replica.quotas.configure(limited("{requests_per_min: 5}"))
        time.now += 1.1
        assert await admitted(replica, 8) == 0


class TestOwnFault:
    """An exchange that fails by a fault of ours is reported, and no request pays for another one's settlement."""

    async def test_it_does_not_reach_the_request_that_waits(
        self, time: Time, shared: SharedMeters, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 90}"))

        async def fail(*_: object, **__: object) -> None:
            raise OverflowError("Python int too large to convert to SQLite INTEGER")

        with monkeypatch.context() as patched:
            patched.setattr(shared, "exchange", fail)
            assert await admitted(replica, 5) == 5
        assert {type(fault) for fault in replica.faults} == {OverflowError}
        time.now += 5.0
        await replica.flush()
        assert 1 <= await admitted(replica, 200) <= 90

    async def test_a_policy_that_refuses_without_the_store_refuses_in_words(
        self, time: Time, shared: SharedMeters, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replica = Replica(shared, time, limited("{requests_per_min: 90, on_store_loss: refuse}"))

        async def fail(*_: object, **__: object) -> None:
            raise OverflowError("too large")

        monkeypatch.setattr(shared, "exchange", fail)
        with pytest.raises(RateLimited):
            await replica.routing_request()
