"""What the end of an answer tells."""

from __future__ import annotations

import json

import pytest

from gateway.stream_tail import TAIL_BYTES, StreamTail, has_first_token, merge_timing, usage_of
from tests.gateway.scripted import COMPLETION, chunk


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


WHOLE = event(chunk("a")) + event(chunk(finish="stop")) + event(chunk(usage=(11, 5))) + event(b"[DONE]")


def tail_of(stream: bytes, size: int = 1000) -> StreamTail:
    tail = StreamTail()
    for at in range(0, len(stream), size):
        tail.feed(stream[at : at + size])
    return tail


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_a_whole_stream_is_complete_and_has_its_usage(size: int) -> None:
    summary = tail_of(WHOLE, size).summary()

    assert summary.is_complete
    assert summary.usage is not None
    assert (summary.usage.prompt_tokens, summary.usage.completion_tokens) == (11, 5)


def test_a_long_stream_is_kept_only_at_its_end() -> None:
    tail = tail_of(event(chunk("x" * 200)) * 5000 + WHOLE, 997)

    assert sum(map(len, tail._pieces)) <= 2 * TAIL_BYTES + 997
    assert tail.summary().is_complete


@pytest.mark.parametrize(
    ("stream", "is_complete"),
    [
        (b"", False),
        (event(chunk("a")), False),
        (event(chunk("a")) + event(chunk(finish="stop")), True),
        (event(chunk("a")) + event(b"[DONE]"), True),
        (event(chunk("a")) + event(b'{"error":{"message":"x"}}'), False),
        (event(chunk("a")) + b'event: error\ndata: {"error":{"message":"x"}}\n\n', False),
        (event(chunk('say "finish_reason":"stop" or data: [DONE]')), False),
    ],
)
def test_only_a_finish_or_done_makes_a_stream_complete(stream: bytes, is_complete: bool) -> None:
    assert tail_of(stream).summary().is_complete is is_complete


def test_an_error_inside_the_text_is_not_an_error_event() -> None:
    summary = tail_of(event(chunk('{"error": 1}')) + event(chunk(finish="stop"))).summary()

    assert not summary.has_error
    assert summary.is_complete


@pytest.mark.parametrize(
    ("piece", "has_token"),
    [
        (event(chunk("a")), True),
        (event(chunk("")), False),
        (event(b'{"choices":[{"delta":{"role":"assistant","content":""}}]}'), False),
        (event(b'{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}'), True),
        (event(b'{"choices":[{"delta":{"reasoning_content":"hm"}}]}'), True),
        (b": keep-alive\n\n", False),
        (event(b'{"choices":[{"delta":{"content":null}}]}'), False),
    ],
)
def test_the_first_token_is_the_first_text(piece: bytes, has_token: bool) -> None:
    assert has_first_token(piece) is has_token


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b'{"usage":null}', b'{"usage":{}}', b"\xff", b'{"usage":{"prompt_tokens":"x"}}']
)
def test_a_usage_that_is_none_is_none(answer: bytes) -> None:
    assert usage_of(answer) is None


def test_cached_tokens_are_read() -> None:
    usage = usage_of(b'{"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}}')

    assert usage is not None
    assert usage.cached_tokens == 8


def test_timing_is_merged_beside_what_is_there() -> None:
    merged = json.loads(merge_timing(b'{"a":1,"penstock":{"x":2,"timing":{"engine":3}}}', {"queue": 0.5}))

    assert merged == {"a": 1, "penstock": {"x": 2, "timing": {"engine": 3, "gateway": {"queue": 0.5}}}}
    assert json.loads(merge_timing(COMPLETION, {}))["penstock"] == {"timing": {"gateway": {}}}


@pytest.mark.parametrize("answer", [b"", b"[1]", b"nonsense", b"\xff"])
def test_what_is_no_object_is_left_alone(answer: bytes) -> None:
    assert merge_timing(answer, {}) == answer
