"""Streams of chat completions as those of messages: order, content and end, wherever the bytes were cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.messages.stream import MessageStream
from gateway.errors import UpstreamFailed
from tests.gateway.dialects.messages.client import accumulated, events_of


def event(delta: dict[str, Any] | None = None, **choice: Any) -> bytes:
    """One event of a chat completion."""
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": None, **choice}]
    return b"data: " + json.dumps({"id": "chatcmpl-7", "model": "m", "choices": choices}).encode() + b"\n\n"


def call(index: int, identifier: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    """One piece of a tool call."""
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "function": function, **({"id": identifier} if identifier else {})}]}


USAGE = (
    b'data: {"id":"chatcmpl-7","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,'
    b'"prompt_tokens_details":{"cached_tokens":5}}}\n\n'
)
DONE = b"data: [DONE]\n\n"
STREAM = b"".join(
    [
        event({"role": "assistant", "content": ""}),
        b": keep-alive\n\n",
        event({"reasoning_content": "hm "}),
        event({"reasoning_content": "ja"}),
        event({"content": "caf\u00e9 "}),
        event({"content": "\u2603\n"}),
        event(call(0, "t1", "get", "")),
        event(call(0, arguments='{"city":')),
        event(call(0, arguments='"Lyon"}')),
        event(call(1, "t2", "look", "{}")),
        event(finish_reason="tool_calls"),
        USAGE,
        DONE,
    ]
)
EXPECTED = [
    {"type": "thinking", "thinking": "hm ja", "signature": "penstock"},
    {"type": "text", "text": "caf\u00e9 \u2603\n"},
    {"type": "tool_use", "id": "t1", "name": "get", "input": {"city": "Lyon"}},
    {"type": "tool_use", "id": "t2", "name": "look", "input": {}},
]


def translated(pieces: list[bytes], *, shows_reasoning: bool = True) -> bytes:
    stream = MessageStream(shows_reasoning=shows_reasoning)
    return b"".join([stream.feed(piece) for piece in pieces]) + stream.finish(b"")


def test_a_whole_stream() -> None:
    found = accumulated(events_of(translated([STREAM])))
    assert found["content"] == EXPECTED
    assert (found["id"], found["model"], found["role"]) == ("msg_7", "m", "assistant")
    assert (found["stop_reason"], found["stop_sequence"]) == ("tool_use", None)
    assert found["usage"] == {
        "input_tokens": 4,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 5,
        "output_tokens": 4,
    }


@pytest.mark.parametrize("cut", range(1, len(STREAM), 7))
def test_a_cut_anywhere_changes_nothing(cut: int) -> None:
    assert accumulated(events_of(translated([STREAM[:cut], STREAM[cut:]])))["content"] == EXPECTED


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=12))
def test_cuts_anywhere_change_nothing(cuts: list[int]) -> None:
    places = [0, *sorted(set(cuts)), len(STREAM)]
    pieces = [STREAM[begin:end] for begin, end in pairwise(places)]
    assert accumulated(events_of(translated(pieces)))["content"] == EXPECTED


def test_reasoning_that_nobody_wanted_is_left_out() -> None:
    found = accumulated(events_of(translated([STREAM], shows_reasoning=False)))
    assert found["content"] == EXPECTED[1:]


def test_each_piece_leaves_at_once() -> None:
    stream = MessageStream(shows_reasoning=False)
    stream.feed(event({"role": "assistant", "content": ""}))
    assert b'"text":"one"' in stream.feed(event({"content": "one"}))
    assert b'"text":"two"' in stream.feed(event({"content": "two"}))


def test_a_comment_keeps_the_connection_alive() -> None:
    assert MessageStream(shows_reasoning=False).feed(b": keep-alive\n\n") == b": keep-alive\n\n"


def test_the_end_is_written_once() -> None:
    stream = MessageStream(shows_reasoning=False)
    first = stream.feed(event({"content": "x"}, finish_reason="stop") + DONE)
    assert first.count(b"event: message_stop") == 1
    assert stream.finish(b"") == b""


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"finish_reason": "stop"}, ("end_turn", None)),
        ({"finish_reason": "stop", "stop_reason": "END"}, ("stop_sequence", "END")),
        ({"finish_reason": "stop", "matched_stop": "END"}, ("stop_sequence", "END")),
        ({"finish_reason": "stop", "stop_reason": 151645}, ("end_turn", None)),
        ({"finish_reason": "length"}, ("max_tokens", None)),
        ({"finish_reason": "content_filter"}, ("refusal", None)),
        ({"finish_reason": "stop", "native_finish_reason": "pause_turn"}, ("pause_turn", None)),
    ],
)
def test_stop_reasons(choice: dict[str, Any], expected: tuple[str, str | None]) -> None:
    found = accumulated(events_of(translated([event({"content": "x"}), event(**choice), DONE])))
    assert (found["stop_reason"], found["stop_sequence"]) == expected


def test_an_error_is_the_last_event() -> None:
    error = b'data: {"error":{"message":"broke","type":"api_error","param":null,"code":"upstream_error"}}\n\n'
    stream = MessageStream(shows_reasoning=False)
    found = events_of(stream.feed(event({"content": "x"})) + stream.finish(error))
    assert found[-1] == {"type": "error", "error": {"type": "api_error", "message": "broke"}}
    assert "message_stop" not in {each["type"] for each in found}


@pytest.mark.parametrize(
    ("code", "kind"), [("server_is_overloaded", "overloaded_error"), ("upstream_timeout", "timeout_error")]
)
def test_an_error_has_the_type_of_its_status(code: str, kind: str) -> None:
    error = json.dumps({"error": {"message": "m", "type": "x", "code": code}}).encode()
    assert (
        events_of(MessageStream(shows_reasoning=False).finish(b"data: " + error + b"\n\n"))[-1]["error"]["type"] == kind
    )


def test_a_broken_off_stream_has_no_end() -> None:
    assert b"message_stop" not in translated([event({"content": "x"})])


def test_a_name_that_comes_late_and_a_missing_id() -> None:
    pieces = [
        event({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}),
        event({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ":1}"}}]}),
        event(finish_reason="stop"),
        DONE,
    ]
    found = accumulated(events_of(translated(pieces)))
    assert found["content"] == [{"type": "tool_use", "id": "toolu_0", "name": "f", "input": {"a": 1}}]
    assert found["stop_reason"] == "tool_use"


def test_a_later_call_waits_for_the_open_one_and_that_one_leaves_at_once() -> None:
    stream = MessageStream(shows_reasoning=False)
    first = stream.feed(event(call(0, "a", "tide")) + event(call(1, "b", "wind", '{"p"')))
    assert b"tide" in first
    assert b"wind" not in first
    assert b"partial_json" in stream.feed(event(call(0, arguments='{"q":1}')))
    assert stream.feed(event(call(1, arguments=":2}"))) == b""
    last = stream.feed(event(finish_reason="tool_calls") + DONE)
    assert accumulated(events_of(first + last))["content"][1]["input"] == {"p": 2}
    assert last.count(b"content_block_stop\n") == 2


def test_a_call_behind_a_whole_one_leaves_at_once() -> None:
    stream = MessageStream(shows_reasoning=False)
    stream.feed(event(call(0, "a", "tide", "{}")))
    assert b"wind" in stream.feed(event(call(1, "b", "wind")))
    assert b"partial_json" in stream.feed(event(call(1, arguments='{"p"')))


def test_calls_that_wait_come_behind_text_that_does_not() -> None:
    pieces = [event(call(0, "a", "tide") | {}), event(call(1, "b", "wind", "{}")), event({"content": "so"}), DONE]
    kinds = [block["type"] for block in accumulated(events_of(translated(pieces)))["content"]]
    assert kinds == ["tool_use", "text", "tool_use"]


def test_more_for_a_call_behind_what_followed_it_is_the_upstreams_failure() -> None:
    pieces = [event(call(0, "a", "tide", "{")), event({"content": "so"}), event(call(0, arguments="\n"))]
    assert b"so" in translated(pieces)
    with pytest.raises(UpstreamFailed, match="behind what followed it"):
        translated([*pieces, event(call(0, arguments="}"))])


def test_parts_and_objects_are_delivered() -> None:
    spelled = {"index": 0, "id": "t", "function": {"name": "f", "arguments": {"depth": [3]}}}
    pieces = [event({"content": [{"type": "text", "text": "spring tide"}]}), event({"tool_calls": [spelled]}), DONE]
    assert accumulated(events_of(translated(pieces)))["content"] == [
        {"type": "text", "text": "spring tide"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"depth": [3]}},
    ]


def test_a_character_cut_in_halves_is_whole() -> None:
    pieces = [event({"content": "a\ud83c"}), event({"content": "\udf0ab\ud83d"}), event(finish_reason="stop"), DONE]
    assert accumulated(events_of(translated(pieces)))["content"] == [{"type": "text", "text": "a\U0001f30ab\ufffd"}]


def test_a_refusal_is_text_with_its_stop_reason() -> None:
    found = accumulated(events_of(translated([event({"refusal": "No."}), event(finish_reason="stop"), DONE])))
    assert found["content"] == [{"type": "text", "text": "No."}]
    assert found["stop_reason"] == "refusal"


def test_other_choices_are_left_out() -> None:
    found = accumulated(events_of(translated([event({"content": "a"}), event({"content": "b"}, index=1), DONE])))
    assert found["content"] == [{"type": "text", "text": "a"}]


def test_an_empty_answer_is_a_message_without_content() -> None:
    assert accumulated(events_of(translated([event(finish_reason="stop"), DONE])))["content"] == []
