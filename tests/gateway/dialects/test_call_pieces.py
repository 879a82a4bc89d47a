"""Each piece of a tool call finds its call: by index, by id, by name, or as more of the last one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.completion.assembly import assembled
from gateway.dialects.call_pieces import CallPieces, are_whole_arguments, call_name, call_text
from gateway.dialects.chat_events import CallFunction, CallInput, CallPiece
from gateway.dialects.messages.stream import MessageStream
from gateway.dialects.responses.stream import ResponseStream
from tests.gateway.dialects.messages.client import accumulated
from tests.gateway.dialects.messages.client import events_of as message_events_of
from tests.gateway.dialects.responses.scripts import events_of
from tests.gateway.dialects.responses.test_stream import frame

Calls = list[tuple[str, str]]
"""Names and arguments."""


def piece(index: int | None = None, id: str | None = None, name: str = "", arguments: str = "") -> dict[str, Any]:
    """A piece with the members that are given."""
    members = {"index": index, "id": id, "function": {"arguments": arguments, **({"name": name} if name else {})}}
    return {key: value for key, value in members.items() if value is not None}


STREAMS: dict[str, tuple[list[list[dict[str, Any]]], Calls]] = {
    "two calls open, then the pieces of each": (
        [
            [piece(0, "a", "tide"), piece(1, "b", "wind")],
            [piece(0, arguments='{"port":"Brest"}')],
            [piece(1, arguments='{"port":"Vigo"}')],
        ],
        [("tide", '{"port":"Brest"}'), ("wind", '{"port":"Vigo"}')],
    ),
    "pieces that alternate among three calls": (
        [
            [piece(0, "a", "tide", "{"), piece(1, "b", "wind", "["), piece(2, "c", "moon", "{")],
            [piece(2, arguments="}"), piece(0, arguments='"x":')],
            [piece(1, arguments="1]"), piece(0, arguments="1}")],
        ],
        [("tide", '{"x":1}'), ("wind", "[1]"), ("moon", "{}")],
    ),
    "a whole call, then another": (
        [[piece(0, "a", "tide", "{}")], [piece(1, "b", "wind", "{")], [piece(1, arguments="}")]],
        [("tide", "{}"), ("wind", "{}")],
    ),
    "a name behind the arguments": (
        [[piece(0, "a", arguments='{"n"')], [piece(0, name="tide", arguments=":2")], [piece(0, arguments="}")]],
        [("tide", '{"n":2}')],
    ),
    "a call that never gets a name": (
        [[piece(0, "a", arguments="{}")], [piece(1, "b", "wind", "{}")]],
        [("wind", "{}"), ("", "{}")],
    ),
}
WITHOUT_INDEX: dict[str, tuple[list[list[dict[str, Any]]], Calls]] = {
    "neither index nor id": (
        [[piece(name="tide", arguments='{"n":')], [piece(arguments="3}")], [piece(name="wind", arguments="{}")]],
        [("tide", '{"n":3}'), ("wind", "{}")],
    ),
    "two whole calls in one delta, without index and id": (
        [[piece(name="tide", arguments="{}"), piece(name="tide", arguments="{}")]],
        [("tide", "{}"), ("tide", "{}")],
    ),
    "ids alone, repeated": (
        [
            [piece(id="a", name="tide"), piece(id="b", name="wind")],
            [piece(id="b", arguments="[7]")],
            [piece(id="a", arguments="[8]")],
        ],
        [("tide", "[8]"), ("wind", "[7]")],
    ),
    "one index for all calls": (
        [[piece(0, "a", "tide", "{}")], [piece(0, "b", "wind", '{"n":')], [piece(0, arguments="4}")]],
        [("tide", "{}"), ("wind", '{"n":4}')],
    ),
}


def sse(deltas: list[list[dict[str, Any]]]) -> bytes:
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": {"tool_calls": pieces}, "finish_reason": None} for pieces in deltas
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    events = [json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode() for choice in choices]
    return b"".join(b"data: %b\n\n" % event for event in [*events, b"[DONE]"])


def as_message(stream: bytes) -> Calls:
    """The calls that a Messages client gets."""
    found = accumulated(message_events_of(MessageStream(shows_reasoning=False).finish(stream)))
    return [(block["name"], json.dumps(block["input"], separators=(",", ":"))) for block in found["content"]]


def as_response(stream: bytes) -> Calls:
    """The calls that a Responses client gets."""
    output = events_of(ResponseStream(frame()).finish(stream))[-1]["response"]["output"]
    return [(item["name"], item["arguments"]) for item in output]


@pytest.mark.parametrize("name", [*STREAMS, *WITHOUT_INDEX])
def test_both_apis_get_the_same_calls(name: str) -> None:
    deltas, expected = (STREAMS | WITHOUT_INDEX)[name]
    assert as_response(sse(deltas)) == expected
    assert as_message(sse(deltas)) == expected


@pytest.mark.parametrize("name", STREAMS)
def test_the_stored_answer_has_the_same_calls(name: str) -> None:
    deltas, expected = STREAMS[name]
    stored = assembled(sse(deltas)).completion
    assert stored is not None
    calls = [call["function"] for call in json.loads(stored)["choices"][0]["message"]["tool_calls"]]
    assert sorted((call["name"], call["arguments"]) for call in calls) == sorted(expected)


@pytest.mark.parametrize("name", WITHOUT_INDEX)
def test_an_answer_whose_calls_have_no_index_is_not_stored_in_another_form(name: str) -> None:
    deltas, expected = WITHOUT_INDEX[name]
    stored = assembled(sse(deltas)).completion
    if stored is not None:
        calls = [call["function"] for call in json.loads(stored)["choices"][0]["message"]["tool_calls"]]
        assert [(call["name"], call["arguments"]) for call in calls] == expected


def test_the_first_piece_passed_on_has_all_that_came() -> None:
    calls = CallPieces()
    assert calls.take(CallPiece(index=4, id="a", function=CallFunction(arguments="{"))) is None
    found = calls.take(CallPiece(index=4, function=CallFunction(name="tide", arguments="}")))
    assert found == (0, CallPiece(id="a", function=CallFunction("tide", "{}")))


def test_a_custom_tool_has_its_input() -> None:
    found = CallPieces().take(CallPiece(index=0, id="a", custom=CallInput("shell", "ls")))
    assert found is not None
    assert (call_name(found[1]), call_text(found[1])) == ("shell", "ls")


def test_new_ids_on_pieces_without_a_name_are_the_same_call() -> None:
    calls = CallPieces()
    assert calls.take(CallPiece(index=0, id="a", function=CallFunction("tide"))) is not None
    found = calls.take(CallPiece(index=0, id="other", function=CallFunction(arguments="{}")))
    assert found is not None
    assert found[0] == 0


def test_an_empty_piece_is_no_call() -> None:
    calls = CallPieces()
    calls.take(CallPiece(index=0, function=CallFunction(arguments="")))
    assert calls.rest() == []


@pytest.mark.parametrize(
    ("pieces", "expected"), [([], False), (["{", "}"], True), (['{"a"'], False), (["{}", " "], True)]
)
def test_whole_arguments(pieces: list[str], expected: bool) -> None:
    assert are_whole_arguments(pieces) is expected
