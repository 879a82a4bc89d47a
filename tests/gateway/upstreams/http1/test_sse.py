from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstreams.http1.sse import (
    SseDecoder,
    SseError,
    SseEvent,
    SseProgress,
    encode_event,
)

STREAM = (
    b"\xef\xbb\xbf: hello\n\n"
    b'data: {"delta":"zw\xc3\xb6lf \xf0\x9f\x8e\xb2"}\n\n'
    b"event: error\r\nid: 7\r\ndata: a\r\ndata:b\r\n\r\n"
    b"retry: 10\rdata:  two spaces\r\r"
    b"data\n\n"
    b"id: without data\n\n"
    b"unknown: x\ndata: y\n\n"
    b"data: [DONE]\n\n"
)
EVENTS = [
    SseEvent('{"delta":"zwölf 🎲"}'.encode()),
    SseEvent(b"a\nb", event="error", id="7"),
    SseEvent(b" two spaces"),
    SseEvent(b""),
    SseEvent(b"y"),
    SseEvent(b"[DONE]"),
]


def decode(*pieces: bytes) -> list[SseEvent]:
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


def test_decodes_every_line_ending_field_and_comment() -> None:
    assert decode(STREAM) == EVENTS


@pytest.mark.parametrize("stream", [STREAM, STREAM.replace(b"\n", b"\r\n").replace(b"\r\r\n", b"\r\n")])
def test_decodes_the_same_wherever_the_bytes_are_cut(stream: bytes) -> None:
    for cut in range(len(stream) + 1):
        assert decode(stream[:cut], stream[cut:]) == EVENTS
    assert decode(*(stream[at : at + 1] for at in range(len(stream)))) == EVENTS


DATA = st.text(st.characters(exclude_characters="\r", codec="utf-8")).map(str.encode)


@settings(deadline=None)  # a busy machine is no finding
@given(st.lists(DATA, max_size=6), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_what_is_encoded_comes_back_whatever_the_slicing(
    bodies: list[bytes], line_end: bytes, data: st.DataObject
) -> None:
    wire = b"".join(map(encode_event, bodies)).replace(b"\n", line_end)
    pieces = []
    while wire:
        size = data.draw(st.integers(1, len(wire)))
        pieces.append(wire[:size])
        wire = wire[size:]
    assert [event.data for event in decode(*pieces)] == bodies


@settings(deadline=None)  # a busy machine is no finding
@given(st.binary(), st.data())
def test_no_bytes_whatsoever_upset_it_and_slicing_never_matters(stream: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(stream)))
    assert decode(stream[:cut], stream[cut:]) == decode(stream)


def test_an_event_cut_off_by_the_end_is_pending_and_not_delivered() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n\ndata: b\n") == [SseEvent(b"a")]
    assert decoder.has_pending
    assert decoder.feed(b"\n") == [SseEvent(b"b")]
    assert not decoder.has_pending


def test_knows_the_end_marker_of_a_stream() -> None:
    assert [event.is_done for event in decode(b"data: [DONE]\n\ndata: [DONE] \n\n")] == [True, False]


@pytest.mark.parametrize("piece", [b"data: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"])
def test_bounds_an_endless_event(piece: bytes) -> None:
    decoder = SseDecoder(max_event_bytes=1000)
    with pytest.raises(SseError):
        deque(map(decoder.feed, [piece] * 100))


def test_endless_comments_are_not_an_event() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    for _ in range(100):
        assert decoder.feed(b": keep-alive\n") == []


@pytest.mark.parametrize(
    ("pieces", "progress"),
    [
        ([b'data: {"choices":[{"delta":{}}]}\n\n', b'data: {"report": 1}\n\n'], [True, True]),
        ([b"data: {}\n\n", b"data:\n\n", b"data: \r\n\r\n", b"data\r\r"], [False] * 4),
        ([b"id: 1\n\n", b"retry: 5\n\n", b"event: message\n\n"], [False] * 3),
        ([b'data: {"type":"ping"}\n\n', b'event: ping\ndata: {"type": "ping"}\n\n'], [False] * 2),
        ([b"event: keep-alive\n", b"data: 1\n", b"\n", b"data: 1\n\n"], [False, False, False, True]),
        ([b"event: ping\ndata: 1\n\ndata: 1\n\n"], [True]),
        ([b'data: {"choices":[]}\n\n', b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'], [False, True]),
        ([b'id: 1\ndata: {"choices":[{"delta":{}}]}\n\n', b"id: 2\nevent: x\ndata: x\n\n"], [True, True]),
        ([b"data: [DONE]\n\n", b"error: x\n\n", b"<html>\n", b'{"error":1}\n'], [True] * 4),
        (
            [b'data: {"choices":[{"delta":{"content":"', b'data: {}"}}]}', b"\n\n", b": x\n\n"],
            [True, True, False, False],
        ),
        ([b": ping\n\n", b":\r\n\r\n", b"\n"], [False, False, False]),
        ([b": pi", b"ng data: no\n", b"\n"], [False, False, False]),
        ([b"da", b"ta: x", b"\n\n"], [True, True, False]),
        ([b": ping\n\ndata: x\n\n"], [True]),
        ([b"data: x\n\n: pi", b"ng\n\n"], [True, False]),
        ([b": ping\n\n", b"", b"data: x\n\n"], [False, False, True]),
    ],
)
def test_heartbeats_are_not_progress(pieces: list[bytes], progress: list[bool]) -> None:
    is_progress = SseProgress()
    assert [is_progress(piece) for piece in pieces] == progress


def test_a_name_cannot_smuggle_lines() -> None:
    with pytest.raises(ValueError):
        encode_event(b"x", event="a\ndata: evil")


def test_encodes_events() -> None:
    assert encode_event(b"a\nb", event="error") == b"event: error\ndata: a\ndata: b\n\n"
