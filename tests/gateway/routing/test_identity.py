"""What distinguishes conversations, and routes that keep one in its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.deployments.affinity import NamedSession
from gateway.limits.permit import AdmissionRequest
from gateway.routing.identity import key_of
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.snapshot import PolicySnapshot
from routing_policies.estimation.estimators import Price
from tests.gateway.routing.fleet import fleet_policy, snapshot_of

NOBODY: frozenset[str] = frozenset()


def request(*contents: Any, **fields: Any) -> ChatRequest:
    roles = ["user", "assistant"] * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages, **fields}).encode())


@pytest.mark.parametrize(
    ("name", "one", "other", "is_same"),
    [
        ("neutral: the same request", request("a"), request("a"), True),
        ("its next turn", request("a"), request("a", "b", "c"), True),
        ("text in parts", request("a"), request([{"type": "text", "text": "a"}]), True),
        ("another beginning", request("a"), request("b"), False),
        ("another user of the product", request("a", user="1"), request("a", user="2"), False),
    ],
)
def test_conversations_are_distinguished(name: str, one: ChatRequest, other: ChatRequest, is_same: bool) -> None:
    assert (key_of(one, "t", "conversation") == key_of(other, "t", "conversation")) is is_same, name


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (NamedSession("field:prompt_cache_key", "k"), NamedSession("field:prompt_cache_key", "k"), True),
        # One key is one session, whatever carries it.
        (NamedSession("field:prompt_cache_key", "k"), NamedSession("header:x-session-id", "k"), True),
        (NamedSession("field:prompt_cache_key", "k"), NamedSession("field:prompt_cache_key", "l"), False),
        (NamedSession("field:user", "k"), NamedSession("field:user", "k"), False),  # two conversations of one user
    ],
)
def test_a_named_session_is_one_conversation(one: NamedSession, other: NamedSession, is_same: bool) -> None:
    keys = [key_of(request(text), "t", "conversation", session) for text, session in (("a", one), ("b", other))]
    assert (keys[0] == keys[1]) is is_same


def test_tenants_are_distinguished_whatever_they_state() -> None:
    assert key_of(request("a"), "t", "tenant") == key_of(request("b"), "t", "tenant")
    assert key_of(request("a"), "t", "tenant") != key_of(request("a"), "u", "tenant")
    assert key_of(request("a"), "t", "conversation") != key_of(request("a"), "u", "conversation")


def pick(made: PolicySnapshot, requested: ChatRequest, tried: frozenset[str] = NOBODY) -> tuple[str, str]:
    planned = made.router.match("auto", None, {})
    price = Price(100, 100, 10)
    routing_request = planned.weighed(
        RoutingRequest(price, AdmissionRequest(made.lanes["interactive"], "t", 100)), requested, "t"
    )
    routing_request = made.router.with_history(routing_request, requested)
    live, decision = made.router.pick(planned, tried, "interactive", routing_request)
    return live.id, decision.cause


def test_every_replica_sends_a_conversation_to_the_same_deployment() -> None:
    replicas = [snapshot_of(fleet_policy(5, "sticky"), lambda: 0.0, seed) for seed in (1, 2)]
    homes = set()
    for number in range(40):
        first, again = (pick(made, request(f"question {number}")) for made in replicas)
        assert first == again
        assert first[1] == "sticky"
        homes.add(first[0])
        moved, _ = pick(replicas[0], request(f"question {number}"), frozenset({first[0]}))
        assert moved != first[0]
    assert homes == {"d0", "d1", "d2", "d3", "d4"}


def test_a_canary_route_gives_its_share_of_conversations_to_the_candidate() -> None:
    made = snapshot_of(fleet_policy(2, "canary", rest=", canary: {id: d1, ratio: 0.25}"), lambda: 0.0)
    given = [pick(made, request(f"question {number}")) for number in range(400)]
    assert set(given) == {("d0", "stable"), ("d1", "canary")}
    assert 70 <= given.count(("d1", "canary")) <= 130
