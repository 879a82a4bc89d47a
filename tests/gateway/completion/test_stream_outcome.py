"""How a stream ended, by the meaning of its events, however they are written and wherever they are cut."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.completion.answer_end import MAX_CHOICES, AnswerEnd
from gateway.completion.stream_outcome import BLOCK_BYTES, StreamOutcome, end_of_stream
from tests.gateway.scripted import chunk

DONE = b"data: [DONE]\n\n"
TEXT = b"data: " + chunk("a") + b"\n\n"
FINISH = b"data: " + chunk(finish="stop") + b"\n\n"
USAGE = b"data: " + chunk(usage=(11, 5)) + b"\n\n"
WHOLE = TEXT + FINISH + USAGE + DONE


def event(data: bytes, *, name: bytes = b"", field: bytes = b"data: ", end: bytes = b"\n") -> bytes:
    lines = ([b"event: " + name] if name else []) + [field + line for line in data.split(b"\n")]
    return end.join([*lines, b"", b""])


def choices(*parts: dict[str, Any], **more: Any) -> bytes:
    return event(json.dumps({"choices": [{"delta": {}, **part} for part in parts], **more}).encode())


def end_of(stream: bytes, size: int = 1000) -> AnswerEnd:
    outcome = StreamOutcome()
    for at in range(0, len(stream), size):
        outcome.feed(stream[at : at + size])
    return outcome.end()


def facts(end: AnswerEnd) -> tuple[object, ...]:
    usage = None if end.usage is None else (end.usage.prompt_tokens, end.usage.completion_tokens)
    return end.is_complete, end.is_lasting, end.error is None, end.has_done, usage


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_a_whole_stream_is_complete_and_has_its_usage(size: int) -> None:
    end = end_of(WHOLE, size)

    assert (end.is_complete, end.is_lasting, end.has_done) == (True, True, True)
    assert end.usage is not None
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (11, 5)


def test_a_long_stream_is_read_in_blocks_and_not_stored() -> None:
    outcome = StreamOutcome()
    for _ in range(5000):
        outcome.feed(event(chunk("x" * 200)))

    assert sum(map(len, outcome._pieces)) <= BLOCK_BYTES
    assert not outcome.end(is_over=False).is_complete
    outcome.feed(WHOLE)
    assert outcome.end().is_complete


@pytest.mark.parametrize(
    ("name", "stream"),
    [
        ("without a mark", TEXT + FINISH),
        ("without a finish reason", TEXT + DONE),
        ("no blank line at the end", TEXT + FINISH[:-2]),
        ("error in the text", event(chunk('{"error": 1}')) + FINISH),
        ("error is null", choices({"index": 0, "finish_reason": "stop"}, error=None)),
        ("error is empty", choices({"index": 0, "finish_reason": "stop"}, error={})),
        ("content filter", choices({"index": 0, "finish_reason": "content_filter"}) + DONE),
        (
            "both choices",
            choices({"index": 0, "finish_reason": "stop"}) + choices({"index": 1, "finish_reason": "length"}),
        ),
        ("no index", choices({"finish_reason": "stop"})),
        ("comments between", b": hi\n\n" + TEXT + b": hi\n\n" + FINISH + b": bye\n\n"),
        ("ping events", event(b'{"type": "ping"}', name=b"ping") + TEXT + FINISH),
        ("a message beside choices", choices({"index": 0, "finish_reason": "stop"}, message="fine")),
        ("pings that are no JSON", event(b"ping") + TEXT + FINISH),
        ("events without data", b"data:\n\nid: 1\nretry: 5\n\n" + TEXT + b"data: \n\n" + DONE),
        ("fields of the future", b"data-version: 2\nerrors: 0\n\n" + TEXT + DONE),
        ("blank lines with spaces", b"  \n\n" + TEXT + DONE),
        ("a status of a success", event(b'{"base_resp":{"status_code":0,"status_msg":""}}') + TEXT + DONE),
    ],
)
def test_complete_streams(name: str, stream: bytes) -> None:
    assert end_of(stream).is_complete, name


@pytest.mark.parametrize(
    ("name", "stream"),
    [
        ("empty", b""),
        ("only a mark", DONE),
        ("text only", TEXT),
        ("usage only", USAGE + DONE),
        ("finish and mark in the text", event(chunk('say "finish_reason":"stop" or data: [DONE]'))),
        (
            "one of two choices",
            choices({"index": 0}, {"index": 1}) + choices({"index": 1, "finish_reason": "stop"}) + DONE,
        ),
        ("the other of two", choices({"index": 1}) + FINISH + DONE),
        ("comments only", b": hi\n\n" * 3),
        *(
            (f"only a mark after {stray!r}", TEXT + stray + DONE)
            for stray in (
                b"<html><body>502 Bad Gateway</body></html>\n\n",
                b"upstream connect error or disconnect\n\n",
                b"error: boom\n\n",
                event(b'"upstream connect error"'),
                event(b"500"),
                event(b"null"),
                event(b"[]"),
                event(b"Internal Server Error"),
                b'{"choices":[{"index":0,"finish_reason":"stop"}]}\n\n',
            )
        ),
    ],
)
def test_unfinished_streams(name: str, stream: bytes) -> None:
    end = end_of(stream)
    assert not end.is_complete, name
    assert end.error is None, name


ERRORS = {
    "standard": event(b'{"error":{"message":"x"}}'),
    "spaces": event(b'{ "error" : { "message": "x" } }'),
    "the key not first": event(b'{"id":"c","choices":[],"error":{"message":"x"}}'),
    "a string": event(b'{"error":"boom"}'),
    "no space after the colon": event(b'{"error":"boom"}', field=b"data:"),
    "named": event(b'{"error":{"message":"x"}}', name=b"error"),
    "named with any data": event(b"overloaded", name=b"error"),
    "named without data": b"event: error\ndata:\n\n",
    "an error object": event(b'{"object": "error", "message": "x", "code": 500}'),
    "an error type": event(b'{"type": "error", "error": {"type": "overloaded_error"}}'),
    "detail": event(b'{"detail": "Internal Server Error"}'),
    "detail list": event(b'{"detail": [{"loc": ["body"], "msg": "x"}]}'),
    "message and code": event(b'{"message": "x", "code": 503}'),
    "finish reason": choices({"index": 0, "finish_reason": "error"}),
    "finish reason abort": choices({"index": 0, "finish_reason": "abort"}),
    "finish reason object": choices({"index": 0, "finish_reason": {"type": "abort", "message": "x"}}),
    "in a choice": choices({"index": 0, "error": {"code": 502, "message": "x"}}),
    "in an extension": choices({"index": 0}, x_groq={"error": "over capacity"}),
    "several lines": event(b'{"error":\n{"message":"x"}}'),
    "CRLF": event(b'{"error":{"message":"x"}}', end=b"\r\n"),
    "CR": event(b'{"error":{"message":"x"}}', end=b"\r"),
    "a field of its own": b'error: {"code":500,"message":"compute error","type":"server_error"}\n\n',
    "a field of its own, in CR": b'error:{"error":{"message":"x"}}\r\r',
    "bare JSON": b'{"error":"the runner has stopped"}\n',
    "bare JSON after a mark": b'\xef\xbb\xbf{"error":{"message":"x"}}\n\n',
    "in a list": event(b'[{"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}]'),
    "another status": event(b'{"base_resp":{"status_code":1008,"status_msg":"x"},"choices":null}'),
    "keys in capitals": event(b'{"Message":"x"}'),
    "status code": event(b'{"statusCode":429,"message":"slow down"}'),
    "finish reason failed": choices({"index": 0, "finish_reason": "failed"}),
    "escaped key": event(b'{"\\u0065rror":{"message":"x"}}'),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("after", [b"", DONE, FINISH + DONE])
@pytest.mark.parametrize("before", [b"", TEXT * 3, TEXT * 1000, b"\xef\xbb\xbf" + TEXT, b": hi\n\n"])
def test_an_error_is_an_error_in_any_shape_and_whatever_follows(name: str, before: bytes, after: bytes) -> None:
    end = end_of(before + ERRORS[name] + after)

    assert end.error is not None
    assert not end.is_complete


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_found_wherever_the_bytes_were_cut(name: str) -> None:
    stream = TEXT + ERRORS[name] + DONE
    expected = facts(end_of_stream(stream))
    for at in range(len(stream)):
        outcome = StreamOutcome()
        outcome.feed(stream[:at])
        outcome.end(is_over=False)
        outcome.feed(stream[at:])
        assert facts(outcome.end()) == expected


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("field", [b"data: ", b"data:"])
def test_lines_end_in_any_way(end: bytes, mark: bytes, field: bytes) -> None:
    parts = [chunk("a"), chunk(finish="stop"), chunk(usage=(11, 5)), b"[DONE]"]
    stream = mark + b"".join(event(part, field=field, end=end) for part in parts)
    for size in (1, 3, 50, 5000):
        assert facts(end_of(stream, size)) == facts(end_of_stream(WHOLE))


def test_an_event_of_several_lines_is_one_document() -> None:
    document = json.dumps(json.loads(chunk(finish="stop")), indent=1).encode()
    assert end_of(TEXT + event(document)).is_complete


@given(st.data())
def test_blocks_and_cuts_change_nothing(data: st.DataObject) -> None:
    parts = st.sampled_from(
        [TEXT, FINISH, USAGE, DONE, b": hi\n\n", *ERRORS.values(), choices({"index": 1}), b"\r\n", b"x\n"]
    )
    stream = b"".join(data.draw(st.lists(parts, max_size=8)))
    outcome, at = StreamOutcome(), 0
    while at < len(stream):
        size = data.draw(st.integers(1, 80))
        outcome.feed(stream[at : at + size])
        if data.draw(st.booleans()):
            outcome.end(is_over=False)
        at += size
    assert facts(outcome.end()) == facts(end_of_stream(stream))


@pytest.mark.parametrize(
    "stream",
    [
        USAGE + TEXT * 2000 + FINISH,
        TEXT + choices({"index": 0, "finish_reason": "stop"}, usage={"prompt_tokens": 11, "completion_tokens": 5}),
        choices({"index": 0, "usage": {"prompt_tokens": 11, "completion_tokens": 5}, "finish_reason": "stop"}),
        choices({"index": 0, "finish_reason": "stop"}, x_groq={"usage": {"prompt_tokens": 11, "completion_tokens": 5}}),
        b"".join(
            choices({"index": 0}, usage={"prompt_tokens": 11, "completion_tokens": number}) for number in range(6)
        ),
        TEXT + FINISH + USAGE[:-2],
        TEXT + FINISH + USAGE.replace(b"\n", b"\r\n"),
    ],
)
def test_usage_is_found_wherever_it_stands(stream: bytes) -> None:
    usage = end_of(stream).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (11, 5)


@pytest.mark.parametrize("number", [3_000_000, 10**12, 10**30, -1, True, "x", 1.5, None, [1]])
def test_an_index_that_is_none_changes_nothing(number: object) -> None:
    call = {"index": number, "function": {"arguments": "{}"}}
    stream = choices({"index": 0, "delta": {"tool_calls": [call]}}) + choices(
        {"index": 0, "finish_reason": "tool_calls"}
    )
    assert end_of(stream).is_complete
    assert end_of(choices({"index": number, "finish_reason": "stop"})).is_complete


def test_a_million_choices_are_not_checked_one_by_one() -> None:
    many = b'data: {"choices":[' + b",".join([b"{}"] * 1_000_000) + b"]}\n\n"
    began_at = time.process_time()
    end = end_of(many + FINISH, 65_536)
    took_s = time.process_time() - began_at

    assert end.is_complete
    assert end.is_coarse
    assert took_s < 0.25
    assert end_of(b"".join(choices({"index": number}) for number in range(MAX_CHOICES + 2)) + FINISH).is_coarse


UNREADABLE = {
    "cut off": event(chunk("a")[:-9]),
    "no UTF-8": event(chunk("X").replace(b"X", b"a\xff\xfeb")),
    "no UTF-8 in a part that nobody reads": choices({"index": 0}, own="X").replace(b"X", b"\xff"),
    "text": event(b"Internal Server Error"),
    "HTML": event(b"<html><body>502</body></html>"),
}


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("before", [b"", TEXT * 3, TEXT * 1000])
@pytest.mark.parametrize("size", [64, 10**6])
def test_an_event_that_is_no_json_makes_a_stream_incomplete_whatever_follows(
    name: str, before: bytes, size: int
) -> None:
    end = end_of(before + UNREADABLE[name] + TEXT + FINISH + DONE, size)
    assert end.is_unreadable
    assert not end.is_complete
    assert end.error is None


@pytest.mark.parametrize("data", [b"ping", b"null", b"[]", b"{}", b" ", '{"own":"é😀"}'.encode()])
def test_what_carries_no_text_is_no_unreadable_event(data: bytes) -> None:
    end = end_of(TEXT + event(data) + FINISH + DONE)
    assert (end.is_unreadable, end.is_complete) == (False, True)


def test_only_events_that_clients_read_must_be_json() -> None:
    assert end_of(TEXT + event(b"alive", name=b"status") + FINISH + DONE).is_complete
