# ruff: noqa: E501 (one case a line reads best)
"""Choices by quality, by price and by identity: whole decisions of the routes that request them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from routing_policies.check import run_tests
from routing_policies.loading import load_document, load_policy
from routing_policies.policy.problems import PolicyError
from routing_policies.policy.selection import Canary, Select
from routing_policies.profile import Profile, profile_of
from routing_policies.share import stable_key
from routing_policies.views import Attempt, DeploymentView
from tests.routing_policies.views import view


def live(name: str, **state: Any) -> DeploymentView:
    return msgspec.structs.replace(view(name), **state)


SMALL = live("small", cost=1.0, quality=0.9, forecast_ttft_s=0.1)
LARGE = live("large", cost=10.0, quality=1.0, forecast_ttft_s=0.3)
BY_QUALITY = profile_of(Select(candidates=("small", "large"), policy="quality_then_latency", min_quality=0.8))
BY_COST = profile_of(Select(candidates=("small", "large"), policy="cost_cap", max_request_cost=5.0))
IN_STEPS = profile_of(Select(candidates=("small", "large"), policy="cascade", min_quality=0.9))
HALF_A_SECOND = Attempt(ttft_slo_s=0.5)


def with_(base: DeploymentView, **state: Any) -> DeploymentView:
    return msgspec.structs.replace(base, **state)


@pytest.mark.parametrize(
    ("name", "profile", "candidates", "attempt", "expected", "cause"),
    [
        ("neutral: equal in all", BY_QUALITY, [live("a", cost=1.0), live("b", cost=1.0)], Attempt(), "a", "good_enough"),
        ("the cheapest that is good enough", BY_QUALITY, [LARGE, SMALL], HALF_A_SECOND, "small", "good_enough"),
        ("the small one is not good enough", BY_QUALITY, [with_(SMALL, quality=0.79), LARGE], HALF_A_SECOND, "large", "good_enough"),
        ("just good enough", BY_QUALITY, [with_(SMALL, quality=0.8), LARGE], HALF_A_SECOND, "small", "good_enough"),
        ("nobody is good enough: the best", BY_QUALITY, [with_(SMALL, quality=0.1), with_(LARGE, quality=0.2)], HALF_A_SECOND, "large", "not_good_enough"),
        ("good enough but late", BY_QUALITY, [with_(SMALL, forecast_ttft_s=0.6), LARGE], HALF_A_SECOND, "large", "good_enough"),
        ("the good one is late, so the fast one", BY_QUALITY, [with_(SMALL, quality=0.5), with_(LARGE, forecast_ttft_s=2.0)], HALF_A_SECOND, "small", "not_good_enough"),
        ("all are late: the fastest good one", BY_QUALITY, [with_(SMALL, forecast_ttft_s=3.0), with_(LARGE, forecast_ttft_s=2.0)], HALF_A_SECOND, "large", "too_slow"),
        ("equal prices: the faster", BY_QUALITY, [with_(SMALL, cost=10.0, forecast_ttft_s=0.4), LARGE], HALF_A_SECOND, "large", "good_enough"),
        ("a prompt unlike any learned from", BY_QUALITY, [with_(SMALL, quality=0.0, is_known_prompt=False), with_(LARGE, is_known_prompt=False)], HALF_A_SECOND, "large", "unknown_prompt"),
        ("neutral: both worth trying", IN_STEPS, [live("a"), live("b")], Attempt(), "a", "tried_first"),
        ("the first is worth trying", IN_STEPS, [with_(SMALL, quality=0.4), LARGE], Attempt(), "small", "tried_first"),
        ("the first is hopeless", IN_STEPS, [with_(SMALL, quality=0.2), LARGE], Attempt(), "large", "tried_first"),
        ("nothing is known of the prompt", IN_STEPS, [with_(SMALL, quality=0.0, is_known_prompt=False), with_(LARGE, is_known_prompt=False)], Attempt(), "large", "unknown_prompt"),
        ("neutral: both within the cap, equally good", BY_COST, [live("a", cost=1.0), live("b", cost=1.0)], Attempt(), "a", "within_cap"),
        ("the better one would cost too much", BY_COST, [LARGE, SMALL], Attempt(), "small", "within_cap"),
        ("the better one within the cap", BY_COST, [SMALL, with_(LARGE, cost=5.0)], Attempt(), "large", "within_cap"),
        ("nobody within the cap: the cheapest", BY_COST, [LARGE, with_(SMALL, cost=6.0)], Attempt(), "small", "over_cap"),
        ("without a price nobody knows", BY_COST, [with_(LARGE, cost=None), SMALL], Attempt(), "small", "within_cap"),
    ],
)  # fmt: skip
def test_who_is_chosen_and_why(
    name: str, profile: Profile, candidates: list[DeploymentView], attempt: Attempt, expected: str, cause: str
) -> None:
    decision = profile.decide(candidates, attempt, random.Random(0))
    assert (decision.deployment, decision.cause) == (expected, cause), name


STICKY = profile_of(Select(candidates=("a", "b", "c"), policy="sticky"))
THREE = [view("a"), view("b"), view("c")]


def chosen(profile: Profile, candidates: list[DeploymentView], key: int | None) -> str | None:
    return profile.decide(candidates, Attempt(key=key), random.Random(0)).deployment


def test_a_conversation_stays_where_it_is_and_conversations_spread_evenly() -> None:
    homes = {number: chosen(STICKY, THREE, stable_key("t", str(number))) for number in range(3000)}
    assert homes == {number: chosen(STICKY, THREE[::-1], stable_key("t", str(number))) for number in range(3000)}
    assert all(900 < count < 1100 for count in Counter(homes.values()).values())


def test_only_the_conversations_of_the_one_that_left_move() -> None:
    keys = [stable_key("t", str(number)) for number in range(600)]
    for key in keys:
        home, without_b = chosen(STICKY, THREE, key), chosen(STICKY, [view("a"), view("c")], key)
        assert home in ("b", without_b)
        full_b = [view("a"), view("b", in_flight=10), view("c")]
        assert chosen(STICKY, full_b, key) == without_b


def test_weights_share_conversations_in_proportion() -> None:
    candidates = [view("a", weight=3.0), view("b", weight=1.0)]
    homes = Counter(chosen(STICKY, candidates, stable_key("t", str(number))) for number in range(4000))
    assert 2850 < homes["a"] < 3150


def test_without_anything_to_stick_to_the_first_answers() -> None:
    decision = STICKY.decide(THREE, Attempt(), random.Random(0))
    assert (decision.deployment, decision.cause) == ("a", "first")


def canary(ratio: float) -> Profile:
    return profile_of(Select(candidates=("a", "b"), policy="canary", canary=Canary(id="b", ratio=ratio)))


def test_a_canary_gets_its_share_and_keeps_its_conversations_as_the_share_grows() -> None:
    keys = [stable_key("t", str(number)) for number in range(4000)]
    few, more = ({key for key in keys if chosen(canary(ratio), THREE[:2], key) == "b"} for ratio in (0.1, 0.3))
    assert few < more
    assert 320 < len(few) < 480
    assert 1100 < len(more) < 1300


@pytest.mark.parametrize(
    ("name", "ratio", "candidates", "expected", "cause"),
    [
        ("neutral: no share", 0.0, [view("a"), view("b")], "a", "stable"),
        ("the whole", 1.0, [view("a"), view("b")], "b", "canary"),
        ("the canary is down", 1.0, [view("a"), view("b", ready=False)], "a", "stable"),
        ("only the canary is up", 0.0, [view("a", ready=False), view("b")], "b", "canary"),
    ],
)
def test_either_side_of_a_canary_stands_in_for_the_other(
    name: str, ratio: float, candidates: list[DeploymentView], expected: str, cause: str
) -> None:
    decision = canary(ratio).decide(candidates, Attempt(key=7), random.Random(0))
    assert (decision.deployment, decision.cause) == (expected, cause), name


POLICY = """\
schema_version: 1
deployments:
  - id: small
    url: "unix:/run/penstock/small.sock"
    model: penstock-small
    quality: 0.7
    cost_per_mtok: {prompt: 0.05, completion: 0.2}
  - id: large
    url: "unix:/run/penstock/large.sock"
    model: penstock-large
    cost_per_mtok: {prompt: 0.5, completion: 2.0}
routes:
  - id: good
    match: {models: [good]}
    select: {policy: quality_then_latency, min_quality: 0.9, candidates: [small, large]}
  - id: thrifty
    match: {models: [thrifty]}
    select: {policy: cost_cap, max_request_cost: 0.0005, candidates: [small, large]}
  - id: steady
    match: {models: [steady]}
    select: {policy: sticky, sticky_by: tenant, candidates: [small, {id: large, weight: 3}]}
  - id: trial
    match: {models: [trial]}
    select: {policy: canary, canary: {id: small, ratio: 0.5}, candidates: [large, small]}
"""
TESTS = """\
tests:
  - {name: constant quality, request: {model: good}, expect: {deployment: large}}
  - {name: predicted, request: {model: good}, given: {small: {quality: 0.95}}, expect: {deployment: small}}
  - {name: dear, request: {model: thrifty}, expect: {deployment: small}}
  - {name: short, request: {model: thrifty, prompt_tokens: 100, output_tokens: 10}, expect: {deployment: large}}
  - {name: tenant, request: {model: steady}, expect: {deployment: small}}
  - {name: one, request: {model: trial, conversation: "0"}, expect: {deployment: small}}
  - {name: two, request: {model: trial, conversation: "8"}, expect: {deployment: large}}
"""


def test_tests_inside_a_policy_run_the_same_choices() -> None:
    result = run_tests(*load_document(POLICY + TESTS, source="policy.yaml"))
    assert result.num_tests == 7
    assert result.failures == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ratio: 0.5", "ratio: 1.5", "1.0"),
        ("canary: {id: small", "canary: {id: smal", "did you mean"),
        ("    cost_per_mtok: {prompt: 0.05, completion: 0.2}\n", "", "no cost_per_mtok"),
        ("sticky_by: tenant", "sticky_by: user", "tenant"),
        ("min_quality: 0.9, ", "", "min_quality"),
        (
            "policy: quality_then_latency, min_quality: 0.9, candidates: [small, large]",
            "policy: cascade, min_quality: 0.9, candidates: [small]",
            "two candidates",
        ),
        ("policy: quality_then_latency", "hedge: {}, policy: cascade", "no effect with policy cascade"),
        (
            "policy: quality_then_latency",
            "cascade: {first_tokens: 4}, policy: quality_then_latency",
            "policy cascade only",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_remedy(old: str, new: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        load_policy(POLICY.replace(old, new), source="policy.yaml")
