"""Members of groups in routing: what carries over, who is chosen, and how new ones get their share."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from gateway.errors import Shed
from gateway.limits.permit import AdmissionRequest
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.snapshot import PolicySnapshot
from routing_policies.estimation.estimators import Price
from tests.gateway.routing.groups import GROUP, Groups

A, B, C = (f"{GROUP}@{host}:8000" for host in ("a", "b", "c"))


def ready(snapshot: PolicySnapshot) -> PolicySnapshot:
    for live in snapshot.deployments.values():
        live.is_ready = True
    return snapshot


def chosen(snapshot: PolicySnapshot, num: int = 1, *, hold: bool = False) -> Counter[str]:
    """How often each deployment is picked for the route; with `hold` each pick holds a permit."""
    planned = snapshot.router.match("auto", None, {})
    found: Counter[str] = Counter()
    for _ in range(num):
        live, _ = snapshot.router.pick(planned, frozenset(), "interactive")
        found[live.id] += 1
        if hold:
            assert live.limiter.try_acquire(AdmissionRequest(snapshot.lanes["interactive"])) is not None
    return found


def test_members_that_stay_keep_their_state_and_new_ones_are_probed_first() -> None:
    groups = Groups()
    first = ready(groups.of("a", "b"))
    second = groups.of("b", "c")
    assert second.deployments[B] is first.deployments[B]
    assert (second.deployments[B].is_ready, second.deployments[C].is_ready) == (True, False)
    assert set(second.deployments) == {B, C}


def test_a_group_without_members_refuses_for_want_of_a_ready_deployment() -> None:
    groups = Groups()
    for snapshot in (groups.build({}), groups.of()):
        assert not snapshot.is_servable
        with pytest.raises(Shed, match="is ready"):
            chosen(snapshot)


def test_the_document_is_as_written_and_the_policy_has_the_members() -> None:
    snapshot = Groups().of("a")
    assert [one.id for one in snapshot.document.deployments] == [GROUP]
    assert [one.id for one in snapshot.policy.deployments] == [A]
    assert {live.group for live in snapshot.deployments.values()} == {GROUP}


@pytest.mark.parametrize("policy", ["first_available", "least_in_flight", "latency_first", "weighted"])
def test_load_is_spread_over_the_members_of_a_group(policy: str) -> None:
    snapshot = ready(Groups(policy=policy).of("a", "b", "c"))
    found = chosen(snapshot, 9, hold=True)
    assert set(found) == {A, B, C}
    assert max(found.values()) <= (4 if policy == "weighted" else 3)


def test_the_members_of_a_group_come_before_what_is_written_behind_it() -> None:
    snapshot = ready(Groups(candidates=f"{GROUP}, cloud").of("a", "b"))
    found = chosen(snapshot, 9, hold=True)
    assert found == {A: 4, B: 4, "cloud": 1}


def test_a_fallback_may_be_a_group() -> None:
    groups = Groups(candidates=f"cloud], fallback: [{GROUP}")
    snapshot = ready(groups.of("a", "b"))
    snapshot.deployments["cloud"].is_ready = False
    assert set(chosen(snapshot, 4, hold=True)) == {A, B}


@pytest.mark.parametrize("policy", ["first_available", "least_in_flight", "latency_first", "weighted"])
def test_a_new_member_gets_a_share_that_grows(policy: str) -> None:
    now = [100.0]
    groups = Groups(clock=lambda: now[0], policy=policy)
    ready(groups.of("a"))
    snapshot = ready(groups.of("a", "b"))
    snapshot.deployments[B].begin_warm_up(now[0])
    young = chosen(snapshot, 400)[B] / 400
    now[0] += 20.0
    older = chosen(snapshot, 400)[B] / 400
    assert young <= 0.16
    assert young <= older


def test_a_new_member_is_used_where_no_other_has_a_free_permit() -> None:
    groups = Groups(clock=lambda: 100.0)
    ready(groups.of("a"))
    snapshot = ready(groups.of("a", "b"))
    snapshot.deployments[B].begin_warm_up(100.0)
    snapshot.deployments[A].limiter.set_limit(type("One", (), {"value": 1})())
    assert chosen(snapshot, 2, hold=True) == {A: 1, B: 1}


def test_a_warming_member_is_named_as_the_reason() -> None:
    groups = Groups(clock=lambda: 100.0)
    ready(groups.of("a"))
    snapshot = ready(groups.of("a", "b"))
    snapshot.deployments[B].begin_warm_up(100.0)
    planned = snapshot.router.match("auto", None, {})
    rng = random.Random(1)
    reasons = {planned.decide(frozenset(), rng).dropped.get(B) for _ in range(100)}
    assert reasons == {"warming", None}


def test_conversations_move_to_a_new_member_once_and_stay() -> None:
    now = [100.0]
    groups = Groups(clock=lambda: now[0], policy="sticky")
    ready(groups.of("a"))
    snapshot = ready(groups.of("a", "b"))
    snapshot.deployments[B].begin_warm_up(now[0])
    planned = snapshot.router.match("auto", None, {})
    request = AdmissionRequest(snapshot.lanes["interactive"])
    sides: dict[int, list[str]] = {}
    for _ in range(31):
        for key in range(60):
            routed = RoutingRequest(Price(1, 1, 1), request, key=key * 7919)
            decision = planned.decide(frozenset(), random.Random(0), routed)
            sides.setdefault(key, []).append(decision.deployment or "")
        now[0] += 1.0
    moves = [sum(one != other for one, other in itertools.pairwise(found)) for found in sides.values()]
    assert max(moves) == 1
    assert sum(found[0] == B for found in sides.values()) < sum(found[-1] == B for found in sides.values())


def test_a_member_returns_with_its_state_within_the_drain() -> None:
    groups = Groups()
    first = ready(groups.of("a", "b"))
    gone = first.deployments[A]
    groups.of("b")
    groups.builder.departures.note_left(gone)
    back = groups.of("a", "b")
    assert back.deployments[A] is gone
    assert (gone.has_left, groups.builder.departures.members) == (False, ())
