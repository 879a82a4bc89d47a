"""Texts of answers: what counts for equality, and where two differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.replay.answer_text import AnswerText


def answer(*messages: dict[str, Any], finish: str = "stop", **fields: Any) -> bytes:
    choices = [{"index": i, "message": message, "finish_reason": finish} for i, message in enumerate(messages)]
    return json.dumps({"choices": choices, **fields}).encode()


def text(*messages: dict[str, Any], finish: str = "stop", **fields: Any) -> AnswerText:
    return AnswerText.of(answer(*messages, finish=finish, **fields))


def test_ids_times_and_usage_do_not_count() -> None:
    one = text({"content": "hello"}, id="a", created=1, usage={"prompt_tokens": 1})
    assert one.text == "hello"
    assert one.difference(text({"content": "hello"}, id="b", created=2)) is None


def test_tool_calls_reasoning_and_the_end_count_but_not_the_ids_of_calls() -> None:
    def called(arguments: str, call_id: str) -> AnswerText:
        call = {"id": call_id, "type": "function", "function": {"name": "get", "arguments": arguments}}
        return text({"content": None, "tool_calls": [call]}, finish="tool_calls")

    assert called('{"a":1}', "x").difference(called('{"a":1}', "y")) is None
    assert called('{"a":1}', "x").difference(called('{"a":2}', "x")) is not None
    assert text({"content": "a"}).difference(text({"content": "a", "reasoning_content": "b"})) is not None
    assert text({"content": "a"}).difference(text({"content": "a"}, finish="length")) is not None
    assert text({"content": "a"}, {"content": "b"}).difference(text({"content": "a"}, {"content": "c"})) is not None


def test_a_difference_has_its_place_in_bytes_and_both_sides() -> None:
    found = text({"content": "né and so on"}).difference(text({"content": "né or so on"}))
    assert found is not None
    assert (found.at, found.then, found.now) == (4, "né and so on", "né or so on")
    longer = text({"content": "one"}).difference(text({"content": "one two"}))
    assert longer is not None
    assert longer.at == 3


@pytest.mark.parametrize("body", [b"", b"[]", b'{"choices": 1}', b'{"choices": [{"index": 0}]}', b'{"choices": [1]}'])
def test_what_is_no_completion_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="no chat completion"):
        AnswerText.of(body)


def test_the_first_of_several_differences_is_found_wherever_it_is() -> None:
    then = "0123456789" * 13
    for at in range(len(then)):
        now = then[:at] + "x" * (len(then) - at)
        difference = AnswerText(then).difference(AnswerText(now))
        assert difference is not None
        assert difference.at == at
        cut = AnswerText(then).difference(AnswerText(then[:at]))
        assert cut is not None
        assert cut.at == at
