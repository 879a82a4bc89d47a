"""Canaries measured by confidence sequences: no false alarms by peeking, and real harm found soon."""

from __future__ import annotations

import random

import pytest

from routing_policies.estimation.confidence import ratio_bounds
from routing_policies.loading import load_policy
from routing_policies.policy.diff import diff
from routing_policies.trial import Side, TrialGuard, evaluate_trial, is_worse, new_side, shared_changes, trial_share


def count(side: Side, is_error: bool) -> None:
    side["error"].count += 1
    side["error"].events += is_error


def first_alarm(rng: random.Random, old_ratio: float, new_ratio: float, num_requests: int) -> int | None:
    """After how many requests a tenth of the traffic is called worse, looking every ten requests."""
    old, new, guard = new_side(), new_side(), TrialGuard(max_error_rise=0.0)
    for number in range(num_requests):
        is_new = rng.random() < 0.1
        count(new if is_new else old, rng.random() < (new_ratio if is_new else old_ratio))
        if number % 10 == 0 and is_worse(evaluate_trial(old, new, guard)):
            return number
    return None


def test_peeking_at_equal_policies_raises_no_more_false_alarms_than_allowed() -> None:
    rng = random.Random(11)
    alarms = [first_alarm(rng, 0.05, 0.05, 1_500) for _ in range(60)]
    assert sum(alarm is not None for alarm in alarms) <= 3  # 5 % of 60


def test_a_policy_that_fails_a_third_of_its_requests_is_found_within_a_thousand() -> None:
    rng = random.Random(7)
    alarms = [first_alarm(rng, 0.01, 0.33, 3_000) for _ in range(10)]
    assert all(alarm is not None and alarm < 1_000 for alarm in alarms)


@pytest.mark.parametrize(("events", "number"), [(0, 1), (0, 500), (3, 500), (250, 500), (500, 500)])
def test_bounds_hold_the_ratio_and_are_wider_for_a_smaller_alpha(events: int, number: int) -> None:
    wide, narrow = ratio_bounds(events, number, 0.001), ratio_bounds(events, number, 0.1)
    assert 0.0 <= wide.low <= narrow.low <= events / number <= narrow.high <= wide.high <= 1.0


def test_nothing_is_stated_of_a_policy_that_few_have_met() -> None:
    old, new = new_side(), new_side()
    for _ in range(500):
        count(old, False)
    for _ in range(49):
        count(new, True)
    assert not is_worse(evaluate_trial(old, new, TrialGuard()))
    count(new, True)
    assert is_worse(evaluate_trial(old, new, TrialGuard()))


def test_a_rise_within_the_guard_is_no_harm() -> None:
    old, new = new_side(), new_side()
    for number in range(20_000):
        count(old, number % 100 == 0)
        count(new, number % 50 == 0)
    assert not is_worse(evaluate_trial(old, new, TrialGuard(max_error_rise=0.02)))
    assert is_worse(evaluate_trial(old, new, TrialGuard(max_error_rise=0.0)))


def test_a_tenant_may_allow_less_than_a_canary_requests() -> None:
    assert [trial_share(10, limit) for limit in (None, 5, 0, 50)] == [10, 5, 0, 10]


BASE = """
schema_version: 1
deployments:
  - {id: small, url: "http://small", model: tiny, limits: {max_in_flight: 8}}
lanes: [{id: interactive, weight: 2}]
tenants: [{id: shop, limits: {requests_per_min: 10}}]
routes: [{id: main, select: {candidates: [small]}, timeouts: {total_ms: 60000}}]
"""


@pytest.mark.parametrize(
    ("old", "new", "is_shared"),
    [
        ("total_ms: 60000", "total_ms: 70000", False),
        ('url: "http://small"', 'url: "http://other"', False),
        ("{id: shop,", "{id: shop, models: [auto],", False),
        ("{id: shop,", "{id: shop, flags: {canary: 5},", False),
        ("max_in_flight: 8", "max_in_flight: 9", True),
        ("weight: 2", "weight: 3", True),
        ("requests_per_min: 10", "requests_per_min: 11", True),
        ("tenants: [", "tenants: [{id: bank}, ", True),
    ],
)
def test_what_all_traffic_shares_has_no_canary(old: str, new: str, is_shared: bool) -> None:
    changes = diff(load_policy(BASE, source="p"), load_policy(BASE.replace(old, new), source="p"))
    assert changes
    assert bool(shared_changes(changes)) is is_shared
