"""Recorded requests through a policy: routes, hits, deployments, cost and times that it would have had."""

from __future__ import annotations

import random

import msgspec
import pytest

from routing_policies.loading import load_policy
from routing_policies.policy.document import Policy
from routing_policies.replay import Measured, RecordedRequest, Replay, ReplayOutcome, moves, summarize, unchanged_routes

BASE = """
schema_version: 1
deployments:
  - {id: small, url: "http://small", model: tiny, cost_per_mtok: {prompt: 1, completion: 1}}
  - {id: large, url: "http://large", model: big, cost_per_mtok: {prompt: 10, completion: 10}}
routes:
  - {id: rest, select: {candidates: [large, small]}, cache: {mode: exact, ttl_s: 60}}
"""
SHORT = '  - {id: short, match: {when: "request.turns <= 1"}, select: {candidates: [small]}}\n'


def policy(text: str = BASE) -> Policy:
    return load_policy(text, source="policy")


def recorded(num: int, rng: random.Random) -> list[RecordedRequest]:
    return [
        RecordedRequest(
            at=float(number),
            tenant="shop",
            model="auto",
            question=f"{rng.randrange(num // 2):08x}",
            turns=rng.choice((1, 3)),
            prompt_bytes=400,
            route="rest",
            deployment="large",
            cache="miss",
            prompt_tokens=100,
            output_tokens=20,
            ttft_ms=rng.uniform(80, 120),
        )
        for number in range(num)
    ]


def outcomes(
    policy: Policy, requests: list[RecordedRequest], trusts: frozenset[str] = frozenset()
) -> list[ReplayOutcome]:
    replay = Replay(policy, Measured(requests), trusts=trusts)
    return [replay.send(request) for request in requests]


def test_a_condition_moves_the_requests_it_holds_for() -> None:
    requests = recorded(200, random.Random(1))
    old, new = outcomes(policy(), requests), outcomes(policy(BASE.replace("routes:\n", f"routes:\n{SHORT}")), requests)
    num_short = sum(request.turns == 1 for request in requests)
    assert moves(old, new, "route") == {("rest", "short"): num_short}
    assert summarize(new).routes["short"] == num_short / 200
    cheaper, dearer = summarize(new).cost_per_1k, summarize(old).cost_per_1k
    assert cheaper is not None
    assert dearer is not None
    assert cheaper < dearer


def test_hits_follow_the_time_an_answer_is_stored_and_who_may_have_it() -> None:
    def requested(at: float, tenant: str) -> RecordedRequest:
        return RecordedRequest(at=at, tenant=tenant, model="auto", question="aa", cache="miss", deployment="large")

    requests = [requested(0, "a"), requested(10, "a"), requested(20, "b"), requested(65, "a"), requested(70, "a")]
    assert [outcome.is_hit for outcome in outcomes(policy(), requests)] == [False, True, False, False, True]
    shared = policy(BASE.replace("mode: exact,", "mode: exact, scope: shared,"))
    assert [outcome.is_hit for outcome in outcomes(shared, requests)] == [False, True, True, False, True]
    off = policy(BASE.replace("mode: exact", "mode: 'off'"))
    assert not any(outcome.is_hit for outcome in outcomes(off, requests))


def test_what_was_shed_stays_shed_unless_the_cache_has_it() -> None:
    stored = RecordedRequest(at=0, tenant="a", model="auto", question="aa", cache="miss", deployment="large")
    shed = [
        RecordedRequest(at=1, tenant="a", model="auto", question=name, cache="miss", ended="shed")
        for name in ("aa", "bb")
    ]
    assert [outcome.ended for outcome in outcomes(policy(), [stored, *shed])] == ["answered", "answered", "shed"]


def test_times_are_those_of_the_deployment_that_would_answer() -> None:
    rng = random.Random(3)
    requests = recorded(400, rng)
    one = RecordedRequest(at=1000, tenant="t", model="small", question="s", deployment="small", prompt_tokens=100)
    slow = [msgspec.structs.replace(one, question=f"s{n}", ttft_ms=rng.uniform(300, 400)) for n in range(100)]
    only_small = policy(BASE.replace("[large, small]", "[small]").replace("mode: exact", "mode: 'off'"))
    side = summarize(outcomes(only_small, [*requests, *slow]))
    assert side.ttft_p50_ms is not None
    assert 300 <= side.ttft_p50_ms <= 400
    assert side.deployments == {"small": 1.0}


def test_only_routes_that_choose_as_before_keep_their_recorded_choice() -> None:
    changed = policy(BASE.replace("[large, small]", "[small, large]"))
    assert "rest" in unchanged_routes(policy(), policy(BASE.replace("ttl_s: 60", "ttl_s: 90")))
    assert "rest" not in unchanged_routes(policy(), changed)
    requests = recorded(20, random.Random(5))
    assert {outcome.deployment for outcome in outcomes(changed, requests)} <= {"small", "cache"}


@pytest.mark.parametrize("model", ["nobody", "small"])
def test_a_model_nobody_serves_is_counted_as_its_error(model: str) -> None:
    request = RecordedRequest(at=0, tenant="a", model=model, question="aa", cache="miss")
    errors = summarize(outcomes(policy(), [request])).errors
    assert errors == ({"model_not_found": 1} if model == "nobody" else {})


def test_shares_are_of_all_requests_so_refusals_make_no_figure_look_better() -> None:
    wide = BASE.replace("{id: rest,", "{id: rest, match: {models: [auto, solo]},")
    requests = [
        msgspec.structs.replace(request, model="auto" if number % 4 else "solo", cache="bypass")
        for number, request in enumerate(recorded(200, random.Random(3)))
    ]
    old, new = outcomes(policy(wide), requests), outcomes(policy(), requests)
    assert summarize(old).errors == {}
    side = summarize(new)
    assert side.errors == {"model_not_found": 50}
    assert (side.routes, sum(side.deployments.values())) == ({"rest": 0.75}, 0.75)
    assert moves(old, new, "route") == {("rest", ""): 50}
