"""Which entry goes first: one-off answers before hits, the tenant that holds most before the others."""

from __future__ import annotations

import random

import pytest

from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.exact_tier import ExactTier
from tests.gateway.cache.exact.test_exact_tier import entry

MB = 1024 * 1024


def call(tier: ExactTier, requested: CacheEntry) -> bool:
    """Whether it is a hit; stored otherwise."""
    if tier.find(requested.exact, 1.0) is not None:
        return True
    tier.put(requested, 1.0)
    return False


def fill_hot(tier: ExactTier, tenant: str, count: int, *, first: int = 0, size: int = 300) -> list[CacheEntry]:
    hot = [entry(first + number, tenant=tenant, size=size) for number in range(count)]
    for each in hot:
        call(tier, each)
        call(tier, each)
    return hot


@pytest.mark.parametrize("size", [10_000, MB // 2, MB - 1000])
@pytest.mark.parametrize("is_own", [False, True])
def test_long_one_off_answers_displace_nothing_that_was_hit(size: int, is_own: bool) -> None:
    tier = ExactTier(max_bytes=8 * MB)
    hot = fill_hot(tier, "calm", 2000)
    for number in range(60 * MB // size):
        call(tier, entry(10_000 + number, tenant="calm" if is_own else "flood", size=size, cost_tokens=size // 4))
    assert all(call(tier, each) for each in hot)


def test_one_off_answers_that_are_dear_displace_no_cheap_ones_with_hits() -> None:
    tier = ExactTier(max_bytes=100 * entry(1).num_bytes)
    hot = fill_hot(tier, "a", 80, size=100)
    for number in range(1000, 2000):
        call(tier, entry(number, cost_tokens=1_000_000))
    assert all(call(tier, each) for each in hot)


def test_a_lone_tenant_may_use_everything() -> None:
    tier = ExactTier(max_bytes=MB)
    fill_hot(tier, "a", 5000)
    assert tier.num_bytes > 0.99 * MB


def test_two_tenants_with_hits_end_up_with_a_half_each() -> None:
    tier = ExactTier(max_bytes=MB)
    fill_hot(tier, "a", 3000)
    for _ in range(4):
        fill_hot(tier, "b", 3000, first=10_000)
    assert 0.45 < tier._eviction.used_by("b") / MB < 0.55
    assert 0.45 < tier._eviction.used_by("a") / MB < 0.55


def test_a_tenant_below_its_share_loses_nothing_to_one_above() -> None:
    tier = ExactTier(max_bytes=MB)
    few = fill_hot(tier, "few", 200)
    for round_ in range(5):
        fill_hot(tier, "many", 5000, first=10_000 * (round_ + 1))
    assert all(call(tier, each) for each in few)


def test_hundreds_of_tenants_share_alike() -> None:
    tier = ExactTier(max_bytes=MB)
    for number in range(300):
        fill_hot(tier, f"t{number}", 3, first=10 * number)
    fill_hot(tier, "large", 5000, first=100_000)
    assert all(tier._eviction.used_by(f"t{number}") > 0 for number in range(300))
    tier.check_integrity()


def test_what_was_hit_long_ago_gives_way_to_what_is_hit_now() -> None:
    tier = ExactTier(max_bytes=MB)
    old = fill_hot(tier, "a", 1000)
    for _ in range(30):
        fill_hot(tier, "a", 1000, first=10_000)
    for number in range(5):
        fill_hot(tier, "a", 1000, first=20_000 + 1000 * number)
    assert sum(each.exact in tier for each in old) < 500


def test_what_comes_again_after_it_went_is_proven() -> None:
    tier = ExactTier(max_bytes=MB)
    fill_hot(tier, "a", 5000)
    requested = entry(90_000, size=200_000)
    assert not call(tier, requested)
    assert requested.exact not in tier, "it is too large for what is unproven"
    assert not call(tier, requested)
    assert call(tier, requested)


def test_a_new_answer_to_what_is_requested_often_stays_proven() -> None:
    tier = ExactTier(max_bytes=MB)
    (hot,) = fill_hot(tier, "a", 1)
    tier.put(entry(0, id="newer", created_at=0.5), 1.0)
    for number in range(1000, 9000):
        call(tier, entry(number))
    assert tier.find(hot.exact, 1.0) is not None


def zipf(rng: random.Random, num_questions: int) -> list[float]:
    return [1 / rank for rank in range(1, num_questions + 1)]


def test_a_flood_costs_a_zipf_stream_next_to_nothing() -> None:
    """One tenant repeats questions; another calls each of its long ones once."""
    rng = random.Random(1)
    weights = zipf(rng, 5000)
    questions = rng.choices(range(5000), weights, k=20_000)

    def hit_ratio(*, is_flooded: bool) -> float:
        tier, hits = ExactTier(max_bytes=2 * MB), 0
        for index, number in enumerate(questions):
            hits += call(tier, entry(number, tenant="calm", size=200 + number % 1000))
            if is_flooded and index % 10 == 0:
                call(tier, entry(100_000 + index, tenant="flood", size=250_000, cost_tokens=60_000))
        return hits / len(questions)

    calm = hit_ratio(is_flooded=False)
    assert calm > 0.5
    assert hit_ratio(is_flooded=True) > calm - 0.03
