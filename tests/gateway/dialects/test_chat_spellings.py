"""Content and arguments in other spellings are the same text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.dialects.chat_spellings import arguments_text, content_text, in_usual_spelling
from tests.gateway.dialects.messages.client import accumulated, message, post
from tests.gateway.dialects.messages.client import events_of as message_events_of
from tests.gateway.dialects.responses.scripts import answering, create, delta, events_of, streaming
from tests.gateway.stack import running


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, ""),
        ("plain", "plain"),
        ([{"type": "text", "text": "north "}, {"type": "text", "text": "pier"}], "north pier"),
        (["north ", {"type": "text", "text": "pier"}], "north pier"),
        ({"type": "text", "text": "one part"}, "one part"),
        ([{"type": "image_url", "image_url": {"url": "https://a"}}, {"type": "text", "text": None}, 7], ""),
        ([], ""),
    ],
)
def test_the_text_of_content(content: Any, expected: str) -> None:
    assert content_text(content) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(None, ""), ("", ""), ('{"a": 1}', '{"a": 1}'), ({"a": 1}, '{"a":1}'), ({}, "{}"), ([2], "[2]"), (0, "0")],
)
def test_the_text_of_arguments(arguments: Any, expected: str) -> None:
    assert arguments_text(arguments) == expected


def test_an_integer_beyond_64_bits_is_written() -> None:
    assert json.loads(arguments_text({"n": 1 << 80})) == {"n": 1 << 80}


NO_EVENTS: list[Any] = [
    *(None, [], {}, {"choices": None}, {"choices": [None, {}, {"delta": 3}]}),
    {"choices": [{"delta": {"tool_calls": [1]}}]},
]


@pytest.mark.parametrize("document", NO_EVENTS)
def test_what_is_no_event_stays(document: Any) -> None:
    before = repr(document)
    assert repr(in_usual_spelling(document)) == before


PARTS = [{"type": "text", "text": "ebb \ud83c\udf0a, "}, {"type": "text", "text": "flow \ud83c."}]
CALL = {"id": "t", "type": "function", "function": {"name": "tide", "arguments": {"port": "\ud83c", "days": [1]}}}
TEXT, INPUT = "ebb \U0001f30a, flow \ufffd.", {"port": "\ufffd", "days": [1]}


@pytest.mark.parametrize("stream", [False, True])
async def test_every_api_delivers_the_whole_answer(tmp_path: Path, stream: bool) -> None:
    members: dict[str, Any] = {"content": PARTS, "tool_calls": [{"index": 0, **CALL}]}
    script = streaming(delta(**members), delta("tool_calls")) if stream else answering(members, "tool_calls")
    async with running(tmp_path) as stack:
        stack.small.scripts = [script, script]
        native, other = await post(stack, message(stream=stream)), await create(stack, stream=stream)
        assert [line["status"] for line in stack.lines()] == [200, 200]
    content = (accumulated(message_events_of(native.body)) if stream else native.json)["content"]
    assert content == [
        {"type": "text", "text": TEXT},
        {"type": "tool_use", "id": "t", "name": "tide", "input": INPUT},
    ]
    text, call = (events_of(other.body)[-1]["response"] if stream else other.json)["output"]
    assert text["content"][0]["text"] == TEXT
    assert json.loads(call["arguments"]) == INPUT
