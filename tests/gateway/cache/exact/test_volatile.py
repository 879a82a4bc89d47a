"""Questions whose answer changes with the time or the person."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.cache.exact.volatile import owner_of, sender_of, volatile_reason, volatility
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.dialects.completions.dialect import completions_dialect
from routing_policies.policy.document import Cache


def request(text: str, **fields: Any) -> ChatRequest:
    document = {"model": "auto", "messages": [{"role": "user", "content": text}], **fields}
    return ChatRequestParser().parse(json.dumps(document).encode())


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


FIRST_TURN = {"role": "user", "content": "Where is my order?"}
WHICH = {"role": "assistant", "content": "Which one?"}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([FIRST_TURN, WHICH, {"role": "user", "content": "The blue one."}], {"personal"}),
        ([FIRST_TURN, {"role": "assistant", "content": "Your order is"}], {"personal"}),
        ([FIRST_TURN, {"role": "system", "content": "Be brief."}], {"personal"}),
        ([FIRST_TURN, WHICH, {"role": "user", "content": "Why do volcanoes erupt near Iceland?"}], set()),
        ([{"role": "system", "content": "Today is Monday. My name is Bot."}, {"role": "user", "content": "Hi"}], set()),
        (
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Where is my order?"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                    ],
                }
            ],
            {"personal"},
        ),
    ],
)
def test_a_text_that_does_not_stand_alone_is_read_with_those_before_it(
    messages: list[dict[str, Any]], expected: set[str]
) -> None:
    assert volatility(request("", messages=messages)) == expected


@pytest.mark.parametrize("prompt", ["Where is my order?", ["Where is my order?"], ["Hello.", "Where is my order?"]])
def test_each_prompt_of_a_text_completion_is_read(prompt: Any) -> None:
    parsed = completions_dialect().begin([]).parse(json.dumps({"model": "auto", "prompt": prompt}).encode())
    assert volatility(parsed) == {"personal"}


@pytest.mark.parametrize(
    ("rule", "are_apart"),
    [
        (Cache(scope="shared"), (False, False)),
        (Cache(scope="shared", personal="per_user"), (True, True)),
        (Cache(scope="tenant"), (True, False)),
        (Cache(scope="tenant", personal="per_user"), (True, True)),
        (Cache(scope="user"), (True, True)),
    ],
)
def test_results_are_shared_among_those_who_share_responses(rule: Cache, are_apart: tuple[bool, bool]) -> None:
    ann, ben = request("hi", user="ann"), request("hi", user="ben")
    own = sender_of(ann, rule, "a")
    assert (sender_of(ann, rule, "b") != own, sender_of(ben, rule, "a") != own) == are_apart
