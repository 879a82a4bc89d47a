"""TimingEvents: only the last JSON event changes, wherever the pieces were cut."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.forwarding.timing_events import MAX_HELD_BYTES, TimingEvents
from tests.gateway.scripted import chunk


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


HEAD = b": hello\n\n" + event(chunk("a")) + event(chunk("b"))
STREAM = HEAD + event(chunk(finish="stop")) + b": beat\n\n" + event(b"[DONE]")


def through(stream: bytes, cuts: list[int]) -> bytes:
    events = TimingEvents()
    edges = [0, *sorted(cuts), len(stream)]
    out = [events.feed(stream[begin:end]) for begin, end in itertools.pairwise(edges)]
    return b"".join(out) + events.finish({"queue": 1.0})


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_only_the_last_event_carries_timing(cuts: list[int]) -> None:
    out = through(STREAM, cuts)

    assert out.startswith(HEAD)
    changed, _, rest = out.removeprefix(HEAD).partition(b"\n\n")
    last = json.loads(changed.removeprefix(b"data: "))
    assert last.pop("penstock") == {"timing": {"gateway": {"queue": 1.0}}}
    assert last == json.loads(chunk(finish="stop"))
    assert rest == b": beat\n\n" + event(b"[DONE]")


def test_text_goes_out_as_it_comes_one_event_behind() -> None:
    events = TimingEvents()

    assert events.feed(event(chunk("a"))) == b""
    assert events.feed(event(chunk("b"))) == event(chunk("a"))


@pytest.mark.parametrize(
    "stream", [b"", b": only\n\n", b"data: [DONE]\n\n", b"data: not json\n\n", b"data: {unfinished"]
)
def test_a_stream_without_a_json_event_is_unchanged(stream: bytes) -> None:
    assert through(stream, []) == stream


def test_what_is_held_is_bounded() -> None:
    events = TimingEvents()
    piece = b"x" * 100_000
    out = sum(len(events.feed(piece)) for _ in range(50))

    assert 5_000_000 - out <= MAX_HELD_BYTES + len(piece)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_of_any_line_end_go_on_one_by_one(end: bytes) -> None:
    events = TimingEvents()
    first, second = (b'data: {"a":%d}' % number + end + end for number in (1, 2))
    assert events.feed(first) == b""
    assert events.feed(second) == first
    assert b'"gateway"' in events.finish({"queue": 1.0})
