"""Fields of a chat request: ranges, null where it is allowed, and unions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.chat.fields.table import FIELD_RULES
from gateway.chat.schema import ChatFields, ImagePart, ToolMessage, UserMessage

MAX_CHOICES = FIELD_RULES["n"].most or 0
MAX_STOP_STRINGS = FIELD_RULES["stop"].most or 0
BASE: dict[str, Any] = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}


def fields(**more: Any) -> ChatFields:
    return msgspec.convert({**BASE, **more}, ChatFields)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("temperature", 2.0, 2.1),
        ("top_p", 1.0, -0.1),
        ("n", MAX_CHOICES, 0),
        ("best_of", 1, 2),
        ("stop", ["x"] * MAX_STOP_STRINGS, ["x"] * (MAX_STOP_STRINGS + 1)),
        ("stop", "x", ""),
        ("top_logprobs", 20, 21),
        ("logit_bias", {"50256": -100}, {"50256": -101}),
        ("logit_bias", {"7": 1.5}, {"seven": 1.5}),
        ("logit_bias", {"7": 1}, {"7\n": 1}),
        ("seed", -(2**63), 2**63),
        ("max_tokens", 1, 0),
        ("repetition_penalty", 0.1, 0.0),
        ("top_k", -1, -2),
    ],
)
def test_a_range_ends_where_it_reports(name: str, good: Any, bad: Any) -> None:
    assert getattr(fields(**{name: good}), name) == good
    with pytest.raises(msgspec.ValidationError, match=rf"\$\.{name}"):
        fields(**{name: bad})


def test_null_is_as_good_as_nothing_and_unknown_fields_are_no_error() -> None:
    assert fields(temperature=None, stop=None, tools=None, somebody_elses=1) == fields()


def test_a_message_is_reported_by_its_role_and_a_part_by_its_type() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "what"}, image]},
        {"role": "tool", "content": "42", "tool_call_id": "t1"},
    ]
    user, tool = fields(messages=messages).messages
    assert isinstance(user, UserMessage)
    assert isinstance(user.content, list)
    assert isinstance(user.content[1], ImagePart)
    assert isinstance(tool, ToolMessage)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "wizard", "content": "x"},
        {"role": "user"},
        {"role": "user", "content": []},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://elsewhere/a.png"}}]},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {}}}]},
    ],
)
def test_a_message_that_no_upstream_could_read_is_refused_with_its_place(message: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.messages\[0\]"):
        fields(messages=[message])
