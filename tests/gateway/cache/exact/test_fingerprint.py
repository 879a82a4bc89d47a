"""Requests share an answer when, and only when, everything that shapes it is equal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.cache.exact.fingerprint import Fingerprint, fingerprint, scope_of
from gateway.chat.request import ChatRequestParser
from routing_policies.policy.values import CacheHistory

BASE: dict[str, Any] = {
    "model": "auto",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How late is it?"}],
    "temperature": 0,
}


def of(document: dict[str, Any], *, scope: bytes = b"tenant\0a", candidates: bytes = b"small") -> Fingerprint:
    found = fingerprint(ChatRequestParser().parse(json.dumps(document).encode()), scope=scope, candidates=candidates)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "change",
    [
        {"stream": True, "stream_options": {"include_usage": True}},
        {"user": "somebody else"},
        {"metadata": {"a": "b"}},
        {"model": "another-alias"},
        {"top_p": None},
    ],
)
def test_what_does_not_shape_an_answer_does_not_count(change: dict[str, Any]) -> None:
    assert of(BASE | change) == of(BASE)


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.1},
        {"seed": 1},
        {"n": 2},
        {"max_tokens": 5},
        {"stop": ["x"]},
        {"response_format": {"type": "json_object"}},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"logprobs": True},
        {"unknown_to_us": 1},
        {"messages": [{"role": "system", "content": "Be long."}, BASE["messages"][1]]},
        {"messages": [*BASE["messages"], {"role": "assistant", "content": "Late."}, BASE["messages"][1]]},
        {"messages": [BASE["messages"][0], {"role": "user", "name": "Ann", "content": "How late is it?"}]},
    ],
)
def test_whatever_shapes_an_answer_makes_another_context(change: dict[str, Any]) -> None:
    assert of(BASE | change).exact != of(BASE).exact
    assert of(BASE | change).context != of(BASE).context


def test_another_last_text_is_another_answer_in_the_same_context() -> None:
    other = {**BASE, "messages": [BASE["messages"][0], {"role": "user", "content": "What time is it?"}]}
    assert of(other).context == of(BASE).context
    assert of(other).exact != of(BASE).exact
    assert of(other).text == "What time is it?"


def test_owners_and_models_are_separate() -> None:
    fingerprints = [of(BASE), of(BASE, scope=b"tenant\0b"), of(BASE, candidates=b"large")]
    assert len({found.exact for found in fingerprints}) == 3
    assert len({found.context for found in fingerprints}) == 3


def test_the_order_of_keys_does_not_count() -> None:
    assert of(dict(reversed(BASE.items()))) == of(BASE)


def test_an_image_leaves_no_text_to_compare() -> None:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "data:image/png,x"}}]
    assert of({**BASE, "messages": [{"role": "user", "content": parts}]}).text is None


def test_a_scope_of_users_needs_a_user() -> None:
    assert scope_of("user", tenant="a", user=None) is None
    assert scope_of("user", tenant="a", user="u") != scope_of("user", tenant="b", user="u")
    assert scope_of("tenant", tenant="a", user="u") == scope_of("tenant", tenant="a", user=None)
    assert scope_of("shared", tenant="a", user=None) == scope_of("shared", tenant="b", user=None)


ALONE = "How do herons catch fish in muddy rivers?"
LEANING = "How do they catch fish in muddy rivers?"


def after(history: list[dict[str, Any]], text: str, history_rule: CacheHistory = "standalone") -> Fingerprint:
    messages = [BASE["messages"][0], *history, {"role": "user", "content": text}]
    request = ChatRequestParser().parse(json.dumps({**BASE, "messages": messages}).encode())
    found = fingerprint(request, scope=b"tenant\0a", candidates=b"small", history=history_rule)
    assert found is not None
    return found


TALK = [{"role": "user", "content": "Tell me of the lake."}, {"role": "assistant", "content": "Gladly."}]


def test_a_question_that_stands_alone_leaves_its_history_only_where_the_policy_reports_it() -> None:
    assert after(TALK, ALONE).context == after([], ALONE).context
    assert after(TALK, ALONE).exact != after([], ALONE).exact, "exact answers know the whole conversation"
    assert after(TALK, ALONE, "exact").context != after([], ALONE, "exact").context
    assert after([], ALONE, "exact").context != after([], ALONE).context, "the two rules never meet"


def test_a_question_that_leans_on_its_history_stays_with_it() -> None:
    assert after(TALK, LEANING).context != after([], LEANING).context
    assert after(TALK, LEANING) == after(TALK, LEANING, "exact")


@pytest.mark.parametrize(
    "history",
    [
        [{"role": "system", "content": "Answer in Dutch."}],
        [{"role": "developer", "content": "Answer in Dutch."}],
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look."},
                    {"type": "image_url", "image_url": {"url": "data:image/png,x"}},
                ],
            },
            {"role": "assistant", "content": "A heron."},
        ],
    ],
)
def test_instructions_and_pictures_count_whatever_the_policy_states(history: list[dict[str, Any]]) -> None:
    assert after(history, ALONE).context != after([], ALONE).context


@pytest.mark.parametrize("size", [100, 200_000])
def test_a_text_of_any_length_counts_whole(size: int) -> None:
    def digest(text: str, **more: Any) -> Fingerprint:
        return of({**BASE, "messages": [{"role": "user", "content": text, **more}]})

    text = '"\n' * size
    assert digest(text) == digest(text)
    others = [
        digest(text + "x"),
        digest("x" + text[1:]),
        digest(text, name="a"),
        digest(text[:-1] + "\\"),
        digest("x" * 2 * size),
    ]
    assert len({other.exact for other in others} | {digest(text).exact}) == len(others) + 1
