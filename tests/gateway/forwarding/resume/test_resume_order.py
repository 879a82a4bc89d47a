"""Orders to engines to report, or to continue, a stream; and which answers obey them."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode
from typing import Any

import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.forwarding.resume.resume_order import RESUME_HEADER, ResumeOrder, can_resume, is_greedy_text
from gateway.forwarding.resume.text_channel import TextChannel
from gateway.forwarding.resume.token_channel import PassedChoice, TokenChannel

KEY = b"0123456789abcdef0123456789abcdef"
DIGEST = "exact;0123;here"


def begun() -> TokenChannel:
    channel = TokenChannel(DIGEST)
    channel.choices = {0: PassedChoice([5, 151_643]), 1: PassedChoice([7], "stop")}
    channel.id, channel.created = "chatcmpl-1", 7
    return channel


def payload_of(order: ResumeOrder) -> dict[str, Any]:
    name, value = order.header(KEY)
    text, _, signature = value.rpartition(b".")
    assert name == RESUME_HEADER
    assert signature.decode() == hmac.new(KEY, text, hashlib.sha256).hexdigest()
    found: dict[str, Any] = json.loads(urlsafe_b64decode(text))
    return found


def request(**members: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True, **members}
    return ChatRequestParser().parse(json.dumps(body).encode())


def test_a_stream_that_begins_gets_a_seed_and_its_own_body() -> None:
    order = ResumeOrder("exact", 3, can_move=True)
    assert payload_of(order) == {"seed": 3, "can_move": True}
    assert order.in_body(b'{"a":1}') == b'{"a":1}'


def test_a_stream_that_goes_on_has_its_tokens_in_the_body_and_their_digest_in_the_order() -> None:
    order = ResumeOrder("exact", 3, begun())
    choices = b'{"0":{"token_ids":[5,151643],"finish":null},"1":{"token_ids":[7],"finish":"stop"}}'
    assert order.in_body(b'{"a":{}} \n') == b'{"a":{},"penstock_choices":%b}' % choices
    payload = payload_of(order)
    assert payload["choices_digest"] == hashlib.sha256(choices).hexdigest()
    assert (payload["id"], payload["created"], payload["digest"]) == ("chatcmpl-1", 7, DIGEST)


@pytest.mark.parametrize(
    ("rule", "value", "is_taken"),
    [
        ("exact", b"exact;0123;here", True),
        ("exact", b"close;0123;here", False),
        ("exact", b"exact;0123", False),
        ("best_effort", b"close;0123;here", True),
        ("exact", None, False),
        ("best_effort", None, False),
    ],
)
def test_a_stream_can_be_continued_where_its_engine_states_so(rule: Any, value: bytes | None, is_taken: bool) -> None:
    headers = [] if value is None else [(RESUME_HEADER, value)]
    assert (ResumeOrder(rule, 3).channel(headers) is not None) == is_taken


def test_a_stream_goes_on_at_an_engine_of_the_same_digest_only() -> None:
    order = ResumeOrder("exact", 3, begun())
    assert order.channel([(RESUME_HEADER, b"exact;other;here")]) is None
    channel = order.channel([(RESUME_HEADER, DIGEST.encode())])
    assert isinstance(channel, TokenChannel)
    assert (channel.choices, channel.id, channel.created) == (begun().choices, "chatcmpl-1", 7)


@pytest.mark.parametrize(
    ("rule", "value", "is_taken"),
    [
        ("exact", "exact;0123;zen5", True),
        ("exact", "exact;0123;zen4", False),
        ("exact", "close;0123;zen5", False),
        ("best_effort", "exact;0123;zen4", True),
        ("best_effort", "close;0123;amx", True),
        ("best_effort", "exact;0124;zen5", False),
    ],
)
def test_another_processor_continues_a_stream_with_close_numbers_only(rule: Any, value: str, is_taken: bool) -> None:
    channel = begun()
    channel.digest = "exact;0123;zen5"
    found = ResumeOrder(rule, 3, channel).channel([(RESUME_HEADER, value.encode())])
    assert (found is not None) == is_taken
    assert found is None or (isinstance(found, TokenChannel) and found.digest == value)


def test_only_streams_can_be_continued() -> None:
    assert can_resume(request())
    assert can_resume(request(n=2))
    assert not can_resume(request(stream=False))
    assert not can_resume(request(penstock_choices={}))


@pytest.mark.parametrize("text", ["What is `penstock_choices`?", "penstock_choices " * 8192])
def test_a_conversation_about_the_member_can_be_continued(text: str) -> None:
    assert can_resume(request(messages=[{"role": "user", "content": text}]))
    assert can_resume(request(metadata={"penstock_choices": "nested"}))


@pytest.mark.parametrize("content", ["hi", "long " * 32768])
def test_the_member_is_found_in_every_spelling_and_in_long_bodies(content: str) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"%b"}],"stream":true,"penstock%bchoices":{}}'
    for spelling in (b"_", b"\\u005f"):
        assert not can_resume(ChatRequestParser().parse(body % (content.encode(), spelling)))


@pytest.mark.parametrize(
    "members",
    [
        {"temperature": 0},
        {"temperature": 0.0, "max_tokens": 5, "stop": ["x"], "stream_options": {"include_usage": True}},
        {"temperature": 1, "top_k": 1},
        {"temperature": 0, "n": 1, "frequency_penalty": 0.0, "tools": [], "logprobs": False, "tool_choice": None},
        {"temperature": 0, "response_format": {"type": "text"}},
    ],
)
def test_greedy_text_may_be_continued_from_its_text(members: dict[str, Any]) -> None:
    assert is_greedy_text(request(**members))


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"temperature": 0.1},
        {"temperature": 0, "logprobs": True},
        {"temperature": 0, "presence_penalty": 0.5},
        {"temperature": 0, "response_format": {"type": "json_object"}},
        {"temperature": 0, "tools": [{"type": "function", "function": {"name": "f"}}]},
        {"temperature": 0, "min_tokens": 5},
        {"temperature": 0, "n": 2},
        {"temperature": 0, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    ],
)
def test_no_other_stream_is_continued_from_its_text(members: dict[str, Any]) -> None:
    assert not is_greedy_text(request(**members))


def test_streams_without_tokens_are_read_as_text_where_the_server_continues_messages() -> None:
    order = ResumeOrder("best_effort", 3, is_greedy_text=True)
    assert isinstance(order.channel([], "trailing_message"), TextChannel)
    assert isinstance(order.channel([(RESUME_HEADER, b"close;1;here")], "trailing_message"), TokenChannel)
    assert order.channel([]) is None
    assert ResumeOrder("best_effort", 3).channel([], "trailing_message") is None
    text = TextChannel()
    assert ResumeOrder("best_effort", 3, text).channel([(RESUME_HEADER, b"close;1;here")]) is None
    assert isinstance(ResumeOrder("best_effort", 3, text).channel([], "trailing_message"), TextChannel)
    assert ResumeOrder("best_effort", 3, begun(), is_greedy_text=True).channel([], "trailing_message") is None
