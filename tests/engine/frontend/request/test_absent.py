"""Requests replayed with null and empty members at every depth are the requests without them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import FrontConfig
from engine.frontend.request.absent import schema_without_absent, without_absent
from engine.frontend.request.requests import parse_chat, parse_completion

CONFIG = FrontConfig(listen="unix:/nowhere", model_name="tiny")
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}},
    "required": ["a"],
    "$defs": {"c": {"const": None}, "d": {"enum": ["", None]}},
}
CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is f of 1?"}], "name": "ann"},
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": ""},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "And now?"},
]
REQUEST = {
    "model": "tiny",
    "messages": CONVERSATION,
    "tools": [{"type": "function", "function": {"name": "f", "description": "it", "parameters": SCHEMA}}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
    "stream": True,
    "stream_options": {"include_usage": True},
    "logit_bias": {"5": 1},
    "metadata": {"k": "v"},
}
DATA = {"const", "default", "enum", "examples"}
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
    "name",
    "index",
    "strict",
    "description",
    "parameters",
    "schema",
    "json_schema",
    "logprobs",
    "parsed",
    "cache_control",
    "title",
    "format",
    "pattern",
    "7",
    "surprise",
    "max_tokens",
    "text",
    "arguments",
    "function",
    "type",
]


def objects(
    value: Any, empties: tuple[Any, ...] = (None, "", [], {})
) -> Iterator[tuple[dict[str, Any], tuple[Any, ...]]]:
    """Every object of the request that is not a schema's data, with what counts as empty there."""
    if isinstance(value, dict):
        yield value, empties
        for name, child in value.items():
            if name in ("parameters", "schema"):
                yield from objects(child, (None, "", []))  # {} is a schema
            elif name in ("properties", "$defs"):
                yield child, (None,)  # anything else is a schema under that name
                for inside in child.values():
                    yield from objects(inside, (None, "", []))
            elif name not in DATA:
                yield from objects(child, empties)
    elif isinstance(value, list):
        for child in value:
            yield from objects(child, empties)


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from(NAMES), st.integers(0, 3)), max_size=12))
def test_null_and_empty_members_at_any_depth_change_nothing(insertions: list[tuple[int, str, int]]) -> None:
    request = copy.deepcopy(REQUEST)
    places = list(objects(request))
    for place, name, which in insertions:
        chosen, empties = places[place % len(places)]
        chosen.setdefault(name, empties[which % len(empties)])
    served = parse_chat(json.dumps(request).encode(), CONFIG)
    assert served == parse_chat(json.dumps(REQUEST).encode(), CONFIG)


@pytest.mark.parametrize("value", [None, "", [], {}])
@pytest.mark.parametrize(
    "field",
    ["function_call", "functions", "audio", "modalities", "prediction", "reasoning_effort", "verbosity", "stop",
     "web_search_options", "tools", "tool_choice", "response_format", "logit_bias", "stream_options", "metadata",
     "user", "max_tokens", "temperature", "chat_template_kwargs", "best_friend"],
)  # fmt: skip
def test_an_absent_field_is_no_field(field: str, value: object) -> None:
    bare = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    assert parse_chat(json.dumps({**bare, field: value}).encode(), CONFIG) == parse_chat(
        json.dumps(bare).encode(), CONFIG
    )


@pytest.mark.parametrize("field", ["suffix", "best_of", "echo", "logprobs", "stop", "functions", "audio"])
def test_completions_know_absent_fields_too(field: str) -> None:
    bare = {"model": "tiny", "prompt": [1, 2]}
    empties: tuple[Any, ...] = (None, [], {})
    for value in empties:
        sent = json.dumps({**bare, field: value}).encode()
        assert parse_completion(sent, CONFIG) == parse_completion(json.dumps(bare).encode(), CONFIG)


ANSWERS: list[dict[str, Any]] = [
    {"content": "hi", "refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": None},
    {"content": "hi", "annotations": [{"type": "url_citation", "url_citation": {"url": "https://x"}}]},
    {"content": "hi", "refusal": "", "reasoning_content": "because", "reasoning": "x", "reasoning_details": [{"a": 1}]},
    {
        "content": "hi",
        "provider_specific_fields": {"x": 1},
        "thinking_blocks": [{"type": "thinking"}],
        "parsed": {"a": 1},
    },
    {"content": [{"type": "text", "text": "hi", "annotations": [1], "cache_control": {"type": "ephemeral"}}]},
    {"content": [{"type": "refusal", "refusal": "hi"}]},
    {"content": None, "refusal": "hi"},
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_is_taken_back_with_whatever_it_had(answer: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", **answer}, {"role": "user", "content": "y"}]
    request = parse_chat(json.dumps({"model": "tiny", "messages": messages}).encode(), CONFIG)
    assert (request.messages[1].text, request.messages[1].tool_calls) == ("hi", None)


def test_an_answer_that_got_no_further_than_reasoning_is_taken_back() -> None:
    answer = {"role": "assistant", "content": None, "reasoning_content": "hm"}
    messages = [{"role": "user", "content": "x"}, answer, {"role": "user", "content": "y"}]
    request = parse_chat(json.dumps({"model": "tiny", "messages": messages}).encode(), CONFIG)
    assert request.messages[1].text == ""


def test_calls_are_taken_back_with_whatever_they_had() -> None:
    function = {"name": "f", "arguments": None, "parsed_arguments": {"a": 1}}
    call = {"index": 0, "id": "c1", "type": "", "function": function, "extra_content": {"signature": "s"}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call], "function_call": {}},
        {"role": "tool", "tool_call_id": "c1", "content": "1", "name": ""},
    ]
    request = parse_chat(json.dumps({"model": "tiny", "messages": messages}).encode(), CONFIG)
    calls = request.messages[1].tool_calls
    assert calls is not None
    (made,) = calls
    assert (made.function.name, made.function.arguments, made.type) == ("f", "", "function")
    assert request.messages[2].name is None


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "title": None, "format": "", "enum": []}, {"type": "string"}),
        ({"const": None}, {"const": None}),
        ({"default": None, "enum": [None, ""]}, {"default": None, "enum": [None, ""]}),
        ({"not": {}, "contains": {}, "items": None}, {"not": {}, "contains": {}}),
        ({"properties": {"enum": {"pattern": None}, "b": None}}, {"properties": {"enum": {}}}),
        ({"anyOf": [{"type": "null", "minLength": None}, True]}, {"anyOf": [{"type": "null"}, True]}),
        ({"components": {"s": {"minimum": None}}}, {"components": {"s": {}}}),
        ({"dependentRequired": {"a": ["b"]}, "required": []}, {"dependentRequired": {"a": ["b"]}}),
    ],
)
def test_keywords_that_are_silent_go_and_data_stays(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert schema_without_absent(schema) == expected


def test_what_has_no_absent_members_is_left_as_it_is() -> None:
    assert without_absent(REQUEST) == REQUEST
    body = {
        "model": "",
        "messages": [None, {"role": "user", "content": ""}],
        "stop": ["", None],
        "temperature": 0,
        "stream": False,
    }
    assert without_absent(body) == body
