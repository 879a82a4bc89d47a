"""Router and snapshots: routes to live deployments, and what a reload keeps."""

from __future__ import annotations

import random
import time

import pytest

from gateway.app.connections.upstream_clients import connector_of
from gateway.errors import ModelNotAllowed, NotFound, Shed, ShedReason
from gateway.limits.permit import AdmissionRequest
from gateway.routing.snapshot import PolicySnapshot, SnapshotBuilder
from routing_policies.loading import load_policy

TEXT = """
schema_version: 1
deployments:
  - {id: small, url: "unix:/tmp/none/small.sock", model: tiny, limits: {max_in_flight: 2}}
  - {id: large, url: "unix:/tmp/none/large.sock", model: big, limits: {max_in_flight: 4}}
tenants:
  - {id: support, models: [auto], keys: []}
routes:
  - {id: faq, match: {models: [auto], headers: {x-app: faq}}, select: {candidates: [small]}}
  - {id: main, match: {models: [auto]}, select: {candidates: [small, large]}}
"""


def snapshot(text: str = TEXT, previous: PolicySnapshot | None = None) -> PolicySnapshot:
    builder = SnapshotBuilder(
        clock=time.monotonic, connect=connector_of(time.monotonic), rng=random.Random(7), environment={}
    )
    made = builder.build(load_policy(text, source="test"), "r1", previous)
    for live in made.deployments.values():
        live.is_ready = True
    return made


def test_matches_by_model_and_header() -> None:
    router = snapshot().router

    assert router.reads_headers
    assert router.match("auto", None, {"x-app": "faq"}).route.id == "faq"
    assert router.match("auto", None, {}).route.id == "main"
    assert router.match("tiny", None, {}).route.id == "implied-direct"


def test_refuses_models_that_are_unknown_or_not_for_this_tenant() -> None:
    router = snapshot().router
    with pytest.raises(NotFound):
        router.match("other", None, {})
    with pytest.raises(ModelNotAllowed):
        router.match("tiny", "support", {})


def test_the_next_candidate_takes_what_the_first_cannot() -> None:
    made = snapshot()
    planned = made.router.match("auto", None, {})
    lane = made.lanes["interactive"]

    assert made.router.pick(planned, frozenset(), "x")[0].id == "small"
    assert made.router.pick(planned, frozenset({"small"}), "x")[0].id == "large"
    permits = [made.deployments["small"].limiter.try_acquire(AdmissionRequest(lane)) for _ in range(2)]
    assert made.router.pick(planned, frozenset(), "x")[0].id == "large"
    assert all(permits)


def test_when_all_are_full_the_shortest_queue_is_waited_in() -> None:
    made = snapshot()
    lane = made.lanes["interactive"]
    for live in made.deployments.values():
        while live.limiter.try_acquire(AdmissionRequest(lane)) is not None:
            pass
    live, decision = made.router.pick(made.router.match("auto", None, {}), frozenset(), "x")

    assert decision.deployment is None
    assert live.id == "small"


def test_nobody_ready_is_a_shed() -> None:
    made = snapshot()
    for live in made.deployments.values():
        live.is_ready = False
    with pytest.raises(Shed) as caught:
        made.router.pick(made.router.match("auto", None, {}), frozenset(), "batch")

    assert caught.value.reason is ShedReason.OVERLOAD
    assert not made.is_servable


def test_a_backoff_that_was_requested_is_stated_in_whole_seconds_and_never_as_none() -> None:
    made = snapshot()
    for live in made.deployments.values():
        live.health.note_pushback(time.monotonic(), 0.4)
    with pytest.raises(Shed, match="a backoff of 1 s"):
        made.router.pick(made.router.match("auto", None, {}), frozenset(), "interactive")


def test_a_reload_keeps_what_did_not_change() -> None:
    before = snapshot()
    after = snapshot(TEXT.replace("max_in_flight: 2", "max_in_flight: 9").replace("large.sock", "moved.sock"), before)

    assert after.deployments["small"] is before.deployments["small"]
    assert after.deployments["small"].limiter.limit == 9
    assert after.deployments["large"] is not before.deployments["large"]
    assert after.lanes["batch"] is before.lanes["batch"]
    assert before.deployments["large"].url.endswith("large.sock")


def test_timeouts_are_the_routes_and_a_plain_answer_has_no_first_byte_limit_of_its_own() -> None:
    planned = snapshot().router.match("auto", None, {})

    assert planned.stream_timeouts.first_byte_s == 30.0
    assert planned.plain_timeouts.first_byte_s == planned.plain_timeouts.total_s == 300.0


def test_a_policy_with_no_lanes_has_one() -> None:
    assert snapshot(TEXT + "lanes: []\n").default_lane == "interactive"


def test_a_foregone_decision_is_the_one_that_forecasts_of_all_would_give() -> None:
    made = snapshot()
    planned = made.router.match("auto", None, {})
    small, large = made.deployments["small"], made.deployments["large"]
    lane = made.lanes["interactive"]

    foregone = planned.decide(frozenset(), random.Random(1))
    assert foregone is planned.decide(frozenset(), random.Random(2))
    assert (foregone.deployment, foregone.policy, foregone.is_saturated) == ("small", "first_available", False)
    small.is_ready = False
    assert planned.decide(frozenset(), random.Random(1)).dropped == {"small": "not_ready"}
    small.is_ready = True
    permits = [small.limiter.try_acquire(AdmissionRequest(lane)) for _ in range(2)]
    assert all(permits)
    assert planned.decide(frozenset(), random.Random(1)).dropped == {"small": "full"}
    assert large.is_ready


def test_a_match_is_looked_up_once_unless_headers_count() -> None:
    by_header = snapshot().router
    assert by_header.match("auto", None, {"x-app": "faq"}) is not by_header.match("auto", None, {})
    plain = snapshot(TEXT.replace(", headers: {x-app: faq}", "")).router
    assert plain.match("auto", None, {}) is plain.match("auto", None, {"x-app": "faq"})
    with pytest.raises(ModelNotAllowed):
        plain.match("tiny", "support", {})
    assert plain.match("tiny", None, {}).route.id == "implied-direct"
    with pytest.raises(ModelNotAllowed):
        plain.match("tiny", "support", {})
