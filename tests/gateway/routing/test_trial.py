"""A canary's share of the traffic: whole conversations, within what each tenant allows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.routing.trial import Trial
from tests.gateway.routing.fleet import snapshot_of

TEXT = """schema_version: 1
deployments: [{id: d0, url: 'unix:/none/d0.sock', model: m}]
tenants: [{id: shop}, {id: lab}]
"""
SNAPSHOT = snapshot_of(TEXT, lambda: 0.0)


def trial(percent: int = 30, **options: Any) -> Trial:
    given = {"salt": "s", "tenants": None, "limits": {}, **options}
    return Trial(SNAPSHOT, percent=percent, **given)


def requested(first: Any, *more: str, **fields: Any) -> ChatRequest:
    messages = [{"role": "user", "content": text} for text in (first, *more)]
    return ChatRequestParser().parse(msgspec.json.encode({"model": "auto", "messages": messages, **fields}))


def test_about_its_share_is_taken_and_another_canary_draws_others() -> None:
    requests = [requested(f"question {number}") for number in range(400)]
    taken = [trial().takes("shop", request) for request in requests]
    assert sum(taken) / len(taken) == pytest.approx(0.3, abs=0.08)
    assert taken != [trial(salt="other").takes("shop", request) for request in requests]


def test_all_requests_of_a_conversation_take_the_same_side() -> None:
    for number in range(20):
        first = requested(f"question {number}")
        parts = [{"type": "text", "text": f"question {number}"}]
        sides = {
            trial(50).takes("shop", one)
            for one in (first, requested(f"question {number}", "and then?"), requested(parts))
        }
        assert len(sides) == 1


def test_a_user_counts_more_than_the_words() -> None:
    sides = {trial(50).takes("shop", requested(f"question {number}", user="anna")) for number in range(50)}
    assert len(sides) == 1


@pytest.mark.parametrize(
    ("options", "tenant", "is_taken"),
    [
        ({"percent": 100}, "shop", True),
        ({"percent": 0}, "shop", False),
        ({"percent": 100, "tenants": frozenset({"lab"})}, "shop", False),
        ({"percent": 100, "tenants": frozenset({"lab"})}, "lab", True),
        ({"percent": 100, "limits": {"shop": 0}}, "shop", False),
        ({"percent": 100}, "nobody", False),
    ],
)
def test_tenants_may_be_named_may_refuse_and_must_exist(options: dict[str, Any], tenant: str, is_taken: bool) -> None:
    assert trial(**options).takes(tenant, requested("hello")) is is_taken
