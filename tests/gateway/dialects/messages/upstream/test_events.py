"""Streams of messages as those of chat completions, and back again, wherever the bytes were cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.completion.assembly import assembled
from gateway.completion.replay import as_event_stream
from gateway.dialects.messages.answer import message_of
from gateway.dialects.messages.stream import MessageStream
from gateway.dialects.messages.upstream.events import MessageEvents
from gateway.errors import UpstreamFailed
from tests.gateway.dialects.messages.client import accumulated, events_of
from tests.gateway.dialects.messages.upstream.anthropic_server import (
    CALL,
    REASONED,
    REDACTED,
    SEARCHED,
    TEXT,
    USAGE,
    message_with,
    stream_of,
)

AFTERWARDS: dict[str, Any] = {"type": "text", "text": "And the tide turns."}
ANSWERS: list[list[dict[str, Any]]] = [
    [TEXT],
    [REASONED, TEXT, CALL],
    [REDACTED, REASONED, TEXT],
    [CALL, {**CALL, "id": "toolu_2", "input": {}}],
    SEARCHED,
    [REASONED, *SEARCHED, REASONED, TEXT],
    [TEXT, CALL, AFTERWARDS],
    [CALL, AFTERWARDS],
    [REASONED, TEXT, AFTERWARDS, CALL],
    [TEXT, AFTERWARDS, TEXT],
    [CALL, {**CALL, "id": "toolu_2", "input": {}}, AFTERWARDS, {**CALL, "id": "toolu_3"}],
    [TEXT, REASONED, CALL, REASONED, AFTERWARDS],
    [],
]


def to_chat(pieces: list[bytes]) -> list[bytes]:
    events = MessageEvents()
    return [*(events.feed(piece) for piece in pieces), events.finish()]


def to_message(pieces: list[bytes]) -> dict[str, Any]:
    stream = MessageStream(shows_reasoning=True)
    return accumulated(events_of(b"".join([stream.feed(piece) for piece in pieces]) + stream.finish(b"")))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    return [data[begin:end] for begin, end in pairwise([0, *sorted(set(places)), len(data)])]


@pytest.mark.parametrize("blocks", ANSWERS)
def test_a_live_stream_there_and_back_is_the_same_message(blocks: list[dict[str, Any]]) -> None:
    found = to_message(to_chat(stream_of(message_with(blocks))))
    assert found["content"] == blocks
    assert found["usage"] == USAGE
    assert found["id"] == "msg_01"


@pytest.mark.parametrize("blocks", ANSWERS[:-1])
def test_a_stored_stream_is_the_same_message_plain_and_streamed(blocks: list[dict[str, Any]]) -> None:
    stored = assembled(b"".join(to_chat(stream_of(message_with(blocks))))).completion
    assert stored is not None
    assert json.loads(message_of(stored, shows_reasoning=True))["content"] == blocks
    assert to_message([as_event_stream(stored, include_usage=True)])["content"] == blocks


@given(st.sampled_from(ANSWERS), st.lists(st.integers(1, 4000), max_size=12))
def test_cuts_anywhere_change_nothing(blocks: list[dict[str, Any]], places: list[int]) -> None:
    data = b"".join(stream_of(message_with(blocks)))
    pieces = cut(data, [place % (len(data) - 1) + 1 for place in places])
    assert to_message(to_chat(pieces))["content"] == blocks


def test_the_chat_events_are_those_of_a_chat_completion() -> None:
    found = b"".join(to_chat(stream_of(message_with([REASONED, TEXT, CALL], stop_reason="tool_use"))))
    documents = [json.loads(part[6:]) for part in found.split(b"\n\n") if part and part != b"data: [DONE]"]
    assert found.endswith(b"data: [DONE]\n\n")
    assert {document["id"] for document in documents} == {"msg_01"}
    assert {document["object"] for document in documents} == {"chat.completion.chunk"}
    assert documents[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert documents[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert documents[-1]["usage"]["prompt_tokens"] == 9
    assert documents[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    completion = json.loads(assembled(found).completion or b"{}")
    message = completion["choices"][0]["message"]
    assert message["content"] == "hello"
    assert message["reasoning_content"] == "let me see"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"city": "Lyon"}


@pytest.mark.parametrize("reason", ["pause_turn", "model_context_window_exceeded", "refusal", "max_tokens"])
def test_stop_reasons_survive(reason: str) -> None:
    assert to_message(to_chat(stream_of(message_with([TEXT], stop_reason=reason))))["stop_reason"] == reason


def test_a_stop_sequence_survives() -> None:
    found = to_message(to_chat(stream_of(message_with([TEXT], stop_reason="stop_sequence", stop_sequence="END"))))
    assert (found["stop_reason"], found["stop_sequence"]) == ("stop_sequence", "END")


def test_an_error_is_an_error_event() -> None:
    events = MessageEvents()
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
    document = json.loads(events.feed(error)[6:])
    assert document["error"]["message"] == "busy"
    assert document["error"]["code"] == "server_is_overloaded"
    assert events.feed(stream_of(message_with([TEXT]))[0]) == b""


def sse(*events: dict[str, Any] | bytes) -> bytes:
    return b"".join(
        b"data: %b\n\n" % (event if isinstance(event, bytes) else json.dumps(event).encode()) for event in events
    )


START: dict[str, Any] = {"type": "message_start", "message": {"id": "msg_01", "model": "claude"}}
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}}
STOP: list[dict[str, Any]] = [
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    {"type": "message_stop"},
]


@pytest.mark.parametrize(
    "malformed",
    [
        json.dumps(DELTA).encode()[:-9],
        json.dumps(DELTA).encode().replace(b"hello", b"a\xff\xfeb"),
        b"Internal Server Error",
        b"7",
    ],
)
def test_an_event_that_is_no_object_is_the_upstreams_failure(malformed: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        to_chat([sse(START, BLOCK, DELTA, malformed, DELTA, *STOP)])


@pytest.mark.parametrize("event", [BLOCK, DELTA, STOP[1]])
def test_content_before_its_message_is_the_upstreams_failure(event: dict[str, Any]) -> None:
    with pytest.raises(UpstreamFailed, match="before the message"):
        to_chat([sse(event)])


@pytest.mark.parametrize("extra", [b"event: ping\ndata: now\n\n", b"data: [DONE]\n\n", b": hi\n\n", b"data: \n\n"])
def test_heartbeats_and_the_mark_of_another_api_are_no_events(extra: bytes) -> None:
    parts = [sse(START, BLOCK), sse(DELTA), sse(*STOP)]
    assert to_message(to_chat([extra.join([b"", *parts, b""])]))["content"] == [TEXT]


@pytest.mark.parametrize("given", [{}, {"city": "Lyon"}])
def test_a_call_that_comes_whole_has_its_arguments(given: dict[str, Any]) -> None:
    block = {"type": "content_block_start", "index": 0, "content_block": {**CALL, "input": given}}
    found = b"".join(to_chat([sse(START, block, *STOP)]))
    deltas = [json.loads(part[6:])["choices"] for part in found.split(b"\n\n") if b"tool_calls" in part]
    arguments = [choices[0]["delta"]["tool_calls"][0]["function"]["arguments"] for choices in deltas]
    assert json.loads("".join(arguments)) == given
    assert to_message([found])["content"] == [{**CALL, "input": given}]


def test_an_impossible_usage_is_none() -> None:
    message = {**START["message"], "usage": {"input_tokens": 10**20, "output_tokens": 5}}
    found = b"".join(to_chat([sse({**START, "message": message}, BLOCK, DELTA, *STOP)]))
    assert b'"usage"' not in found
    assert to_message([found])["usage"]["input_tokens"] == 0


def test_a_delta_of_no_block_is_the_upstreams_failure() -> None:
    with pytest.raises(UpstreamFailed):
        MessageEvents().feed(b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta"}}\n\n')


def test_the_usual_order_is_carried_in_nothing_but_chat_completions() -> None:
    found = b"".join(to_chat(stream_of(message_with([TEXT, CALL, {**CALL, "id": "toolu_2"}]))))
    assert b"content_blocks" not in found


@pytest.mark.parametrize("given", [{}, {"at": "noon"}])
def test_a_call_without_deltas_has_its_arguments(given: dict[str, Any]) -> None:
    call = {**CALL, "input": given}
    start, ping, begin, *_, stop, end, last = stream_of(message_with([call]))
    begin = begin.replace(b'"input": {}', b'"input": ' + json.dumps(given).encode())
    found = b"".join(to_chat([start, ping, begin, stop, stop, end, last]))
    function = json.loads(assembled(found).completion or b"")["choices"][0]["message"]["tool_calls"][0]["function"]
    assert json.loads(function["arguments"]) == given
    assert to_message([found])["content"] == [call]


def test_a_server_that_ends_no_block_loses_nothing() -> None:
    blocks = [TEXT, AFTERWARDS, CALL]
    events = [event for event in stream_of(message_with(blocks)) if b"content_block_stop" not in event]
    assert to_message(to_chat(events))["content"] == blocks


def test_arguments_that_were_cut_are_carried_as_text() -> None:
    call = {**CALL, "id": "toolu_2", "input": {"city": "Brest"}}
    events = stream_of(message_with([CALL, TEXT, call]))
    cut_short = b"".join(events).replace(b'ty\\": \\"Brest\\"}', b"ty")
    stored = json.loads(assembled(b"".join(to_chat([cut_short]))).completion or b"")
    assert stored["choices"][0]["message"]["content_blocks"][2]["input"] == {"arguments": '{"city'}


def test_half_a_surrogate_pair_is_replaced() -> None:
    found = to_message(to_chat(stream_of(message_with([{"type": "text", "text": "ebb \ud83c!"}, CALL]))))
    assert found["content"][0] == {"type": "text", "text": "ebb \ufffd!"}
