"""Questions whose answer changes with the time or the person."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.cache.exact.volatile import owner_of, volatile_reason, volatility_of
from gateway.chat.request import ChatRequest, ChatRequestParser
from routing_policies.policy.document import Cache


def request(text: str, **fields: Any) -> ChatRequest:
    document = {"model": "auto", "messages": [{"role": "user", "content": text}], **fields}
    return ChatRequestParser().parse(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What time is it now?", {"time_dependent"}),
        ("What's today's weather?", {"time_dependent"}),
        ("Who won last night?", {"time_dependent"}),
        ("Do I have any meetings tomorrow?", {"time_dependent", "personal"}),
        ("What is my balance?", {"personal"}),
        ("How much do I owe?", {"personal"}),
        ("Am I eligible?", {"personal"}),
        ("Wie spät ist es?", {"time_dependent"}),
        ("Où est ma commande ?", {"personal"}),
        ("¿Cuál es mi saldo?", {"personal"}),
        ("Che tempo fa oggi?", {"time_dependent"}),
        ("Hoe laat is het?", {"time_dependent"}),
        ("Qual é o meu saldo?", {"personal"}),
        ("Который час?", {"time_dependent"}),
        ("现在几点了？", {"time_dependent"}),
        ("今何時ですか", {"time_dependent"}),
    ],
)
def test_the_time_and_the_sender_are_noticed(text: str, expected: set[str]) -> None:
    assert volatility_of(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "How do I cancel my order?",
        "Write a poem about my cat.",
        "Am I allowed to park here?",
        "Do I have to pay?",
        "Now explain recursion.",
        "What is alternating current?",
        "What is the capital of Australia?",
        "Wie backe ich Brot ohne Hefe?",
        "",
        "?!",
    ],
)
def test_general_questions_are_not(text: str) -> None:
    assert volatility_of(text) == frozenset()


def test_a_document_is_not_read() -> None:
    document = "Summarize this.\n" + "It is my birthday today. " * 60 + "\nThank you."
    assert volatile_reason(request(document), Cache(mode="exact")) is None


@pytest.mark.parametrize(
    ("rule", "user", "reason"),
    [
        (Cache(), "anna", "personal"),
        (Cache(scope="shared"), "anna", "personal"),
        (Cache(scope="user"), "anna", None),
        (Cache(personal="per_user"), "anna", None),
        (Cache(personal="per_user"), None, "personal"),
        (Cache(time_dependent="reuse"), "anna", "personal"),
    ],
)
def test_a_personal_question_needs_its_user(rule: Cache, user: str | None, reason: str | None) -> None:
    fields = {} if user is None else {"user": user}
    assert volatile_reason(request("What is my balance?", **fields), rule) == reason


def test_only_a_personal_question_narrows_who_may_share() -> None:
    rule = Cache(scope="shared", personal="per_user")
    assert owner_of(request("What is my balance?", user="anna"), rule) == "user"
    assert owner_of(request("What is the capital of Australia?", user="anna"), rule) == "shared"


def test_a_route_may_reuse_what_depends_on_the_time() -> None:
    assert volatile_reason(request("What time is it?"), Cache()) == "time_dependent"
    assert volatile_reason(request("What time is it?"), Cache(time_dependent="reuse")) is None
