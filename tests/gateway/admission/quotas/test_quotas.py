"""A tenant's quota, drawn from a shared store in slices by several processes."""

from __future__ import annotations

import asyncio
import random
from collections import deque

import pytest

from gateway.admission.quotas.quota_headers import duration, rate_limit_headers
from gateway.errors import BudgetSpent, QuotaExceeded, RateLimited, error_headers
from gateway.store.meter import Period, period_bounds
from tests.gateway.admission.shared_meters import LATE, LOST, Replica, SharedMeters, Time, limited


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def shared(time: Time) -> SharedMeters:
    return SharedMeters(time)


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
        assert all(27 <= count <= 30 for count in served)

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


class TestHeaders:
    async def test_they_state_where_the_limits_per_minute_stand(self, time: Time, shared: SharedMeters) -> None:
        rules = limited("{requests_per_min: 10, tokens_per_min: 1000, budget: {tokens_per_day: 9999}}")
        replica = Replica(shared, time, rules)
        await replica.routing_request(tokens=300)
        headers = dict(rate_limit_headers(replica.quota, time()))
        assert headers[b"x-ratelimit-limit-requests"] == b"10"
        assert headers[b"x-ratelimit-remaining-requests"] == b"9"
        assert headers[b"x-ratelimit-limit-tokens"] == b"1000"
        assert headers[b"x-ratelimit-remaining-tokens"] == b"700"
        assert headers[b"x-ratelimit-reset-requests"].startswith((b"60", b"61", b"1m"))
        assert len(headers) == 6

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(-1, b"0ms"), (0.012, b"12ms"), (1.0, b"1s"), (7.66, b"7.66s"), (59.999, b"60s"), (360, b"6m0s")],
    )
    def test_a_duration_reads_like_openais(self, seconds: float, text: bytes) -> None:
        assert duration(seconds) == text
