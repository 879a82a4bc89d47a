"""A Responses stream becomes the same events of a chat completion wherever the bytes were cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.responses.upstream.upstream_stream import ResponsesTranslator
from gateway.errors import UpstreamFailed
from tests.gateway.dialects.responses.scripts import sse
from tests.gateway.dialects.responses.upstream.test_responses_upstream import EVENTS, MESSAGE, response

STREAM = b": ping\n\n" + sse(EVENTS).replace(b"hel", "hé".encode())


def translated(pieces: list[bytes]) -> bytes:
    """The translation of a stream that comes in pieces."""
    translator = ResponsesTranslator()
    return b"".join([*(translator.feed(piece) for piece in pieces), translator.finish()])


WHOLE = translated([STREAM])


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_cuts_anywhere_change_nothing(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert translated([STREAM[begin:end] for begin, end in pairwise(edges)]) == WHOLE


def test_the_text_is_that_of_the_stream() -> None:
    assert "hé" in WHOLE.decode()
    assert WHOLE.endswith(b"data: [DONE]\n\n")


def test_a_response_that_only_its_last_event_has_is_sent_whole() -> None:
    events = [EVENTS[0], {"type": "response.completed", "response": response([MESSAGE])}]
    assert b'"content":"hello"' in translated([sse(events)])


def test_an_error_event_is_one_of_chat_completions() -> None:
    error = {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None}
    last = translated([sse([EVENTS[0], error])]).decode().split("\n\n")[-2]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize("event", [{"type": "response.output_text.delta"}, {"type": "response.created"}])
def test_a_malformed_event_is_the_upstreams_failure(event: dict[str, str]) -> None:
    with pytest.raises(UpstreamFailed, match="malformed"):
        translated([sse([event])])


@pytest.mark.parametrize("data", [b"x", b"7", b'{"type":"response.output_text.delta","delta":"', b'{"delta":"a\xff"}'])
def test_data_that_is_no_object_is_the_upstreams_failure(data: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        translated([sse(EVENTS[:1]) + b"data: %b\n\n" % data + sse(EVENTS[1:])])


def test_events_of_unknown_types_and_heartbeats_are_dropped() -> None:
    heartbeats = b"event: ping\ndata: x\n\ndata: [DONE]\n\ndata: \n\n"
    assert translated([sse([{"type": "response.queued"}]) + heartbeats]) == b""


def test_nothing_is_read_behind_the_end() -> None:
    assert translated([STREAM + b"data: x\n\n"]) == WHOLE


def test_an_impossible_usage_is_none() -> None:
    usage = {"input_tokens": 10**20, "output_tokens": 1, "total_tokens": 10**20 + 1}
    last = {"type": "response.completed", "response": response([MESSAGE], usage=usage)}
    assert b'"usage"' not in translated([sse([*EVENTS[:-1], last])])
