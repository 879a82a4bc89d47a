"""Whole chat completions as messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.dialects.messages.answer import message_of
from gateway.errors import UpstreamFailed


def completion(message: dict[str, Any], **choice: Any) -> bytes:
    """A completion of one choice."""
    choices = [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **choice}]
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
    return json.dumps({"id": "chatcmpl-7", "model": "m", "choices": choices, "usage": usage}).encode()


def answered(message: dict[str, Any], *, shows_reasoning: bool = False, **choice: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(message_of(completion(message, **choice), shows_reasoning=shows_reasoning))
    return found


def test_a_plain_answer() -> None:
    assert answered({"content": "hello"}) == {
        "id": "msg_7",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 4,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 5,
            "output_tokens": 4,
        },
    }


def test_tool_calls_reasoning_and_refusal() -> None:
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"a":1.50}'}}
    message = {"content": None, "reasoning_content": "hm", "tool_calls": [call], "refusal": "no"}
    found = answered(message, shows_reasoning=True, finish_reason="tool_calls")
    assert found["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "penstock"},
        {"type": "text", "text": "no"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1.5}},
    ]
    assert found["stop_reason"] == "tool_use"
    assert answered(message)["content"][0]["type"] == "text"


@pytest.mark.parametrize(
    ("arguments", "expected"), [("", {}), ("{}", {}), ("[1]", {"arguments": "[1]"}), ('{"a":', {"arguments": '{"a":'})]
)
def test_arguments_are_an_object(arguments: str, expected: dict[str, Any]) -> None:
    call = {"id": "t", "function": {"name": "f", "arguments": arguments}}
    assert answered({"content": None, "tool_calls": [call]})["content"][0]["input"] == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"knots": 12, "from": None}, {"knots": 12, "from": None}),
        ({}, {}),
        (["north", 2], {"arguments": '["north",2]'}),
        (7, {"arguments": "7"}),
        (None, {}),
        (r'{"d":"\ud83d\\ud83d"}', {"d": "\ufffd\\ud83d"}),
    ],
)
def test_arguments_that_are_present_are_never_lost(arguments: Any, expected: dict[str, Any]) -> None:
    call = {"id": "t", "function": {"name": "f", "arguments": arguments}}
    assert answered({"content": None, "tool_calls": [call]})["content"][0]["input"] == expected


def test_content_in_parts_is_one_text() -> None:
    parts = [{"type": "text", "text": "slack "}, {"type": "text", "text": "water"}]
    assert answered({"content": parts})["content"] == [{"type": "text", "text": "slack water"}]
    assert answered({"content": [], "refusal": "no"})["content"] == [{"type": "text", "text": "no"}]


def test_half_a_surrogate_pair_is_replaced_and_the_rest_delivered() -> None:
    assert answered({"content": "ebb \ud83c flow"})["content"] == [{"type": "text", "text": "ebb \ufffd flow"}]


def test_a_stop_string_that_the_server_names() -> None:
    found = answered({"content": "x"}, stop_reason="END")
    assert (found["stop_reason"], found["stop_sequence"]) == ("stop_sequence", "END")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[{"text":"x"}]}'])
def test_anything_else_is_the_upstreams_failure(body: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        message_of(body, shows_reasoning=False)
