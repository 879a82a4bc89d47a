"""Requests replayed with null and empty members at every depth are served as the requests without them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.errors import InvalidRequest

PARSER = ChatRequestParser()
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
SCHEMA = {"type": "object", "properties": {"a": {"default": None, "enum": []}}, "required": []}
REQUEST: dict[str, Any] = {
    "model": "auto",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": ""}], "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    "stream": True,
    "stream_options": {"include_usage": True},
    "logit_bias": {"5": 1},
    "metadata": {"k": "v"},
}
NAMES = [
    "annotations",
    "refusal",
    "reasoning_content",
    "audio",
    "function_call",
    "functions",
    "modalities",
    "prediction",
    "reasoning_effort",
    "verbosity",
    "web_search_options",
    "stop",
    "user",
    "seed",
    "tool_choice",
    "top_logprobs",
    "tool_calls",
    "tool_call_id",
    "index",
    "strict",
    "description",
    "json_schema",
    "logprobs",
    "parsed",
    "cache_control",
    "detail",
    "7",
    "surprise",
    "max_tokens",
    "type",
    "include_obfuscation",
    "n",
]


def parse(request: dict[str, Any]) -> ChatRequest:
    return PARSER.parse(json.dumps(request).encode())


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of the request outside of its schemas."""
    if isinstance(value, dict):
        yield value
        for name, child in value.items():
            if name not in ("parameters", "schema"):
                yield from objects(child)
    elif isinstance(value, list):
        for child in value:
            yield from objects(child)


EMPTIES: st.SearchStrategy[Any] = st.sampled_from([None, "", [], {}])


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from(NAMES), EMPTIES), max_size=12))
def test_null_and_empty_members_at_any_depth_keep_a_request_served(insertions: list[tuple[int, str, Any]]) -> None:
    request = copy.deepcopy(REQUEST)
    places = list(objects(request))
    for place, name, value in insertions:
        places[place % len(places)].setdefault(name, value)
    fields, expected = parse(request).fields, parse(REQUEST).fields
    for name in ("stop", "tools", "n", "seed", "max_tokens", "stream_options", "user", "tool_choice"):
        assert (getattr(fields, name) or None) == (getattr(expected, name) or None)
    assert [message.content for message in fields.messages] == [message.content for message in expected.messages]


@pytest.mark.parametrize("value", [None, "", [], {}])
@pytest.mark.parametrize(
    "name",
    ["stop", "tools", "tool_choice", "response_format", "stream_options", "logit_bias", "metadata", "user", "seed",
     "max_tokens", "temperature", "top_logprobs", "functions", "audio", "verbosity", "web_search_options"],
)  # fmt: skip
def test_an_absent_field_is_no_field(name: str, value: object) -> None:
    bare = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}
    assert not getattr(parse({**bare, name: value}).fields, name, None)


def test_what_the_gateway_does_not_know_goes_on_verbatim() -> None:
    request = {**REQUEST, "stop": "", "web_search_options": {}, "own": {"a": None, "b": [None, ""]}}
    sent = json.loads(parse(request).body_for("auto"))
    assert "stop" not in sent
    assert (sent["web_search_options"], sent["own"]) == ({}, {"a": None, "b": [None, ""]})
    assert sent["tools"] == REQUEST["tools"]
    assert sent["response_format"] == REQUEST["response_format"]


def test_a_request_that_is_valid_as_it_is_goes_on_byte_by_byte() -> None:
    body = json.dumps({**REQUEST, "user": None, "tools": [], "stop": [], "functions": None}).encode()
    assert PARSER.parse(body).raw == body


@pytest.mark.parametrize(
    "answer",
    [
        {"content": "hi", "refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": None},
        {"content": "hi", "refusal": "", "function_call": {}, "tool_calls": []},
        {"content": None, "tool_calls": [{**CALL, "type": "", "index": None}]},
        {"content": None, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": ""}}]},
        {"content": None, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": None}}]},
        {"content": None, "reasoning_content": "hm"},
        {"content": None, "audio": {"id": "a1"}},
    ],
)
def test_an_answer_is_taken_back(answer: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", **answer}, {"role": "user", "content": "y"}]
    assert parse({"model": "auto", "messages": messages}).messages[1].content == answer["content"]


@pytest.mark.parametrize("message", [{"role": "user", "content": None}, {"role": "user"}, {"role": "assistant"}, None])
def test_a_turn_of_nothing_is_still_refused(message: object) -> None:
    with pytest.raises(InvalidRequest):
        parse({"model": "auto", "messages": [message], "stop": ""})
