"""Exploration over live deployments: what may be drawn, and what never is."""

from __future__ import annotations

import random

import pytest

from gateway.chat.operation import EMBEDDINGS
from gateway.deployments.health.ejection import FailureKind
from gateway.limits.permit import AdmissionRequest
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.routing_request import ExplorationSeed, RoutingRequest
from gateway.routing.snapshot import PolicySnapshot
from routing_policies.estimation.estimators import Price
from tests.gateway.routing.fleet import snapshot_of

RATES = ("{prompt: 1, completion: 1}", "{prompt: 5, completion: 5}", "{prompt: 90, completion: 90}")
NOBODY: frozenset[str] = frozenset()
PRICE = Price(1_000, 1_000, 200)


def text(select: str, *, num: int = 3, extra: str = "") -> str:
    """A policy over d0, d1, …; each dearer than the one before."""
    lines = [
        f"  - {{id: d{n}, url: 'unix:/none/d{n}.sock', model: m{n}, cost_per_mtok: {RATES[n % 3]}, "
        f"limits: {{max_in_flight: 2}}{extra if n == 1 else ''}}}"
        for n in range(num)
    ]
    names = ", ".join(f"d{n}" for n in range(num))
    route = f"  - {{id: main, match: {{models: [auto]}}, select: {{candidates: [{names}], {select}}}}}"
    return "\n".join(["schema_version: 1", "deployments:", *lines, "routes:", route, ""])


def planned(select: str = "explore: {ratio: 0.5}", **how: object) -> tuple[PolicySnapshot, PlannedRoute]:
    snapshot = snapshot_of(text(select, **how), lambda: 10.0)  # type: ignore[arg-type]
    return snapshot, snapshot.router.match("auto", None, {})


def request(snapshot: PolicySnapshot, **fields: object) -> RoutingRequest:
    lane = snapshot.lanes[snapshot.default_lane]
    return RoutingRequest(PRICE, AdmissionRequest(lane, "shop", PRICE.work_tokens), **fields)  # type: ignore[arg-type]


def picks(
    snapshot: PolicySnapshot,
    route: PlannedRoute,
    *,
    num: int = 400,
    avoid: frozenset[str] = NOBODY,
    **fields: object,
) -> dict[str, int]:
    """How often each deployment gets the first attempt."""
    counts: dict[str, int] = {}
    for n in range(num):
        seed = ExplorationSeed(f"req_{n:024x}", False)
        live, _ = snapshot.router.pick(
            route, NOBODY, snapshot.default_lane, request(snapshot, **fields), avoid, (), seed
        )
        counts[live.id] = counts.get(live.id, 0) + 1
    return counts


def test_a_route_that_explores_sends_its_stated_share_elsewhere() -> None:
    snapshot, route = planned("explore: {ratio: 0.3}")
    counts = picks(snapshot, route, num=3_000)
    assert counts["d0"] / 3_000 == pytest.approx(0.8, abs=0.03)
    assert counts["d1"] / 3_000 == pytest.approx(0.1, abs=0.03)
    assert counts["d2"] / 3_000 == pytest.approx(0.1, abs=0.03)


def rule_out(snapshot: PolicySnapshot, state: str) -> None:
    """Put d1 into a state in which a filter drops it."""
    live = snapshot.deployments["d1"]
    if state == "not ready":
        live.is_ready = False
    if state == "full":
        lane = snapshot.lanes[snapshot.default_lane]
        assert all(live.limiter.try_acquire(AdmissionRequest(lane, "shop", 1)) is not None for _ in range(2))
    if state == "ejected":
        for _ in range(20):
            live.health.note_failure(10.0, FailureKind.CONNECT)


@pytest.mark.parametrize(
    ("state", "extra"),
    [
        ("not ready", ""),
        ("full", ""),
        ("ejected", ""),
        ("late", ""),
        ("too small", ", context_tokens: 1600"),
        ("without images", ", input_modalities: [text]"),
    ],
)
@pytest.mark.parametrize("policy", ["first_available", "latency_first", "weighted"])
def test_a_candidate_that_is_ruled_out_is_never_drawn(policy: str, state: str, extra: str) -> None:
    """`weighted` itself may choose a candidate that does not fit the request, but no draw does."""
    snapshot, route = planned(f"policy: {policy}, explore: {{ratio: 0.5, weights: {{d1: 1000}}}}", extra=extra)
    rule_out(snapshot, state)
    avoid, has_images = frozenset({"d1"} if state == "late" else ()), state == "without images"
    for n in range(200):
        seed = ExplorationSeed(f"req_{n:024x}", has_images)
        live, decision = snapshot.router.pick(route, NOBODY, "interactive", request(snapshot), avoid, (), seed)
        assert decision.exploration is not None
        if live.id == "d1" or "d1" in decision.exploration.propensities:
            assert (policy, extra != "") == ("weighted", True)
            assert live.id != "d1" or decision.exploration.result == "preferred"


def test_what_costs_more_than_the_route_allows_is_never_drawn() -> None:
    cap = 0.0061  # d0 costs 0.0012 and d1 0.006; d2 costs 0.108
    snapshot, route = planned(f"policy: cost_cap, max_request_cost: {cap}, explore: {{ratio: 0.5}}")
    assert set(picks(snapshot, route)) == {"d0", "d1"}


def test_when_every_candidate_would_be_late_nothing_is_drawn() -> None:
    snapshot, route = planned()
    assert picks(snapshot, route, avoid=frozenset({"d0", "d1", "d2"})) == {"d0": 400}


def test_requests_of_a_conversation_stay_unless_the_policy_states_otherwise() -> None:
    snapshot, route = planned("policy: latency_first, explore: {ratio: 0.5}")
    assert len(picks(snapshot, route, session=7, last_deployment="d1")) == 1
    assert len(picks(snapshot, route, held_tokens={"d2": 600})) == 1
    assert len(picks(snapshot, route, held_tokens={"d2": 400})) == 3
    snapshot, route = planned("policy: latency_first, explore: {ratio: 0.5, sessions: true}")
    assert len(picks(snapshot, route, session=7, last_deployment="d1")) == 3


def test_a_sticky_route_explores_only_where_the_policy_states_so() -> None:
    snapshot, route = planned("policy: sticky, explore: {ratio: 0.5, sessions: true}")
    assert len(picks(snapshot, route, key=5)) == 3


def test_a_retry_a_fallback_and_another_operation_are_not_drawn() -> None:
    snapshot, route = planned()
    for n in range(100):
        second, decision = snapshot.router.pick(route, frozenset({"d0"}), "interactive", request(snapshot))
        assert (second.id, decision.exploration) == ("d1", None), n
    plans = snapshot.router.plans_of("auto", None)
    assert [plan.planned.explore is None for plan in plans] == [plan.operation.name != "chat" for plan in plans]
    assert EMBEDDINGS.name not in [plan.operation.name for plan in plans]


def test_all_of_many_candidates_have_a_probability() -> None:
    """Without exploration two of them are drawn first, with probabilities that nobody knows."""
    snapshot, route = planned("policy: latency_first, explore: {ratio: 0.5}", num=9)
    decision = snapshot.router.pick(
        route, NOBODY, "interactive", request(snapshot), NOBODY, (), ExplorationSeed("req_1", False)
    )[1]
    assert decision.exploration is not None
    assert len(decision.exploration.propensities) == 9


def test_the_choice_of_a_weighted_route_can_be_repeated_from_the_id() -> None:
    snapshot, route = planned("policy: weighted, explore: {ratio: 0.2}")
    snapshot.router._rng = random.Random(1)
    once = [picks(snapshot, route, num=40), picks(snapshot, route, num=40)]
    assert once[0] == once[1]
