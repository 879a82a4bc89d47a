"""A stream of a chat completion becomes the same events of a response wherever the bytes were cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat.request import ChatRequestParser
from gateway.dialects.responses.request import ResponsesParser
from gateway.dialects.responses.response_frame import ResponseFrame
from gateway.dialects.responses.stream import ResponseStream
from gateway.errors import UpstreamFailed
from tests.gateway.dialects.responses.scripts import USAGE, call, delta, events_of

TOKEN = "0" * 48


def sse(*events: bytes) -> bytes:
    """Events of a chat completion as bytes, the end mark included."""
    return b"".join(b"data: %b\n\n" % event for event in (*events, b"[DONE]"))


STREAM = b": ping\n\n" + sse(
    delta(role="assistant", content=""),
    delta(reasoning="hm"),
    delta(content="caf"),
    delta(content="\u00e9 \U0001f600").replace(b"\\u00e9", "é".encode()),
    delta(annotations=[{"type": "url_citation", "url_citation": {"url": "https://a", "start_index": 0}}]),
    delta(tool_calls=[call(0, id="call_a", name="f", arguments='{"a":')]),
    delta(tool_calls=[call(0, arguments="1}")]),
    delta(tool_calls=[{"index": 1, "id": "call_b", "custom": {"name": "g", "input": "x"}}]),
    delta(output_items=[{"at": 3, "item": {"id": "ws_1", "type": "web_search_call"}}]),
    delta("tool_calls"),
    delta(usage=USAGE),
)


def frame(*, is_stored: bool = False, **fields: Any) -> ResponseFrame:
    """The frame of a small request."""
    parser = ResponsesParser(ChatRequestParser())
    body = json.dumps({"model": "auto", "input": "hi", "stream": True, **fields}).encode()
    request = parser.parse(parser.read(body), {}, is_long=False)
    return ResponseFrame(request, TOKEN, 7, is_stored=is_stored)


def translated(pieces: list[bytes], *, is_stored: bool = False) -> bytes:
    """The translation of a stream that comes in pieces, the last one to `finish`."""
    stream = ResponseStream(frame(is_stored=is_stored))
    return b"".join([*(stream.feed(piece) for piece in pieces[:-1]), stream.finish(pieces[-1])])


WHOLE = translated([STREAM])


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_cuts_anywhere_change_nothing(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert translated([STREAM[begin:end] for begin, end in pairwise(edges)]) == WHOLE


def test_what_the_events_tell_is_what_the_last_one_holds() -> None:
    events = events_of(WHOLE)
    output = events[-1]["response"]["output"]
    added = {event["output_index"]: event["item"]["id"] for event in events if event["type"].endswith("item.added")}
    done = {event["output_index"]: event["item"] for event in events if event["type"].endswith("item.done")}
    assert [done[index] for index in range(len(output))] == output
    assert [added[index] for index in range(len(output))] == [item["id"] for item in output]
    assert len(set(added.values())) == len(output)
    assert [item["type"] for item in output] == [
        *("reasoning", "message", "function_call", "custom_tool_call", "web_search_call"),
    ]
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert text == output[1]["content"][0]["text"] == "caf\u00e9 \U0001f600"
    assert output[1]["content"][0]["annotations"] == [{"type": "url_citation", "url": "https://a", "start_index": 0}]


def test_the_end_comes_with_the_end_mark_unless_the_response_is_stored() -> None:
    stream, stored = ResponseStream(frame()), ResponseStream(frame(is_stored=True))
    assert b"response.completed" in stream.feed(STREAM)
    assert stream.finish(b"") == b""
    assert b"response.completed" not in stored.feed(STREAM)
    assert b"response.completed" in stored.finish(b"")


def test_a_long_text_ends_with_the_stream() -> None:
    stream = ResponseStream(frame())
    assert b"response.completed" not in stream.feed(sse(delta(content="x" * 70_000), delta("stop")))
    assert b"response.completed" in stream.finish(b"")


def test_a_stream_without_content_is_a_response_with_an_empty_message() -> None:
    last = events_of(translated([sse(delta("stop"))]))[-1]
    assert last["type"] == "response.completed"
    assert last["response"]["output"][0]["content"][0]["text"] == ""


def test_an_error_before_everything_comes_behind_a_beginning() -> None:
    events = events_of(translated([b'data: {"error":{"message":"x","code":"c"}}\n\n']))
    assert [event["type"] for event in events] == [
        *("response.created", "response.in_progress", "error", "response.failed"),
    ]


def test_log_probabilities_go_with_their_text() -> None:
    tokens = [{"token": "hel", "logprob": -0.5, "bytes": [104], "top_logprobs": []}]
    event = json.loads(delta(content="hel"))
    event["choices"][0]["logprobs"] = {"content": tokens}
    events = events_of(translated([sse(json.dumps(event).encode(), delta("stop"))]))
    assert next(event for event in events if event["type"].endswith("text.delta"))["logprobs"] == tokens
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == tokens


def test_more_for_a_call_that_was_whole_is_the_upstreams_failure() -> None:
    stream = ResponseStream(frame())
    stream.feed(sse(delta(tool_calls=[call(0, id="a", name="f", arguments="{}")]))[: -len(b"data: [DONE]\n\n")])
    stream.feed(b"data: %b\n\n" % delta(tool_calls=[call(1, id="b", name="g", arguments="{}")]))
    stream.feed(b"data: %b\n\n" % delta(tool_calls=[call(0, arguments=" \n")]))
    with pytest.raises(UpstreamFailed, match="that was whole"):
        stream.feed(b"data: %b\n\n" % delta(tool_calls=[call(0, arguments="x")]))


def test_parts_objects_and_halves_are_delivered() -> None:
    spelled = {"index": 0, "id": "t", "function": {"name": "f", "arguments": {"depth": 3}}}
    events = (
        delta(content=[{"type": "text", "text": "neap \ud83c"}]),
        delta(content="\udf0a\udf0a"),
        delta(tool_calls=[spelled]),
        delta("tool_calls"),
    )
    message, called = events_of(translated([sse(*events)]))[-1]["response"]["output"]
    assert message["content"][0]["text"] == "neap \U0001f30a\ufffd"
    assert called["arguments"] == '{"depth":3}'
