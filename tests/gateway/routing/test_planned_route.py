"""A route over live deployments: what is decided ahead, and what each attempt takes."""

from __future__ import annotations

import random

import pytest

from gateway.deployments.starting import StartReport
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.snapshot import PolicySnapshot
from tests.gateway.routing.fleet import snapshot_of

TEXT = """schema_version: 1
deployments:
  - {{id: d0, url: 'unix:/none/d0.sock', model: m, context_tokens: 4096}}
  - {{id: d1, url: 'unix:/none/d1.sock', model: n{context}}}
  - {{id: d2, url: 'unix:/none/d2.sock', model: o}}
routes:
  - {{id: spare, match: {{models: [spare]}}, select: {{candidates: [d2]}}}}
  - id: main
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [d0, d1], fallback: [spare]}}
    timeouts: {{connect_ms: 500, first_token_ms: 3000, inter_token_ms: 1000, total_ms: 20000}}
"""
RNG = random.Random(1)


def planned(context: str = ", context_tokens: 8192") -> tuple[PolicySnapshot, PlannedRoute]:
    snapshot = snapshot_of(TEXT.format(context=context), lambda: 10.0)
    return snapshot, snapshot.router.match("auto", None, {})


def test_a_fit_first_candidate_takes_it_and_the_next_one_otherwise() -> None:
    snapshot, route = planned()
    assert route.decide(frozenset(), RNG).deployment == "d0"
    assert route.decide(frozenset({"d0"}), RNG).deployment == "d1"
    snapshot.deployments["d0"].is_ready = False
    decision = route.decide(frozenset(), RNG)
    assert (decision.deployment, decision.dropped["d0"]) == ("d1", "not_ready")


def test_one_to_be_avoided_is_taken_only_where_no_other_can() -> None:
    snapshot, route = planned()
    assert route.decide(frozenset(), RNG, avoid=frozenset({"d0"})).deployment == "d1"
    snapshot.deployments["d1"].is_ready = False
    assert route.decide(frozenset(), RNG, avoid=frozenset({"d0"})).deployment == "d0"


def test_the_context_is_the_largest_and_unknown_where_any_is() -> None:
    assert planned()[1].context_tokens == 8192
    assert planned("")[1].context_tokens is None


def test_a_plain_answer_may_take_the_whole_time_before_its_first_byte() -> None:
    _, route = planned()
    assert (route.stream_timeouts.first_byte_s, route.plain_timeouts.first_byte_s) == (3.0, 20.0)
    assert route.stream_timeouts.total_s == route.plain_timeouts.total_s == 20.0


def test_answers_are_stored_apart_by_the_models_that_may_give_them() -> None:
    _, route = planned()
    assert route.cache_candidates == b"m\nn"
    assert route.wanted("shop").tenant == "shop"


def test_the_next_start_may_be_a_fallbacks_and_is_none_while_anybody_is_ready() -> None:
    snapshot, route = planned()
    assert route.has_others
    assert route.next_start(10.0) is None
    for live in snapshot.deployments.values():
        live.is_ready = False
    assert (route.has_ready, route.next_start(10.0)) == (False, None)
    snapshot.deployments["d2"].starting.note_waiting(10.0, StartReport("starting"))
    start = route.next_start(10.0)
    assert start is not None
    assert start.option.live.id == "d2"


def test_who_refused_for_load_comes_back_first_after_its_own_time() -> None:
    snapshot, route = planned()
    assert route.returns_in_s() == 0.0
    snapshot.deployments["d0"].health.note_pushback(10.0, 7.0)
    snapshot.deployments["d2"].health.note_pushback(10.0, 3.0)
    assert route.returns_in_s() == pytest.approx(3.0)


def test_without_predictions_there_is_nothing_to_compare_answers_with() -> None:
    _, route = planned()
    assert route.counterpart("d0") is None
    assert route.encoders == ()
    assert route.inquiry(route.candidates[0][0], None) is None
