"""Numbers of answers cost nothing to read, and survive as they were written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from gateway.cache.audit.comparison import text_of
from gateway.cache.exact.needs import Needs
from gateway.cache.exact.quarantine import digest_of
from gateway.chat.strict_json import LONG_BYTES
from gateway.completion.answer_end import end_of_plain, merge_timing, usage_of
from gateway.completion.answer_json import document_of
from gateway.completion.answers import is_whole
from gateway.completion.assembly import assembled, completion_of_stream
from gateway.completion.replay import as_event_stream
from gateway.completion.stream_outcome import end_of_stream
from gateway.forwarding.error_mapping import enveloped
from gateway.forwarding.logprob_filter import LogprobReader, events_without_odds, odds_of, without_odds

BYTES: Final = 1 << 19
HARMLESS: Final = "-0.25"
NUMBERS: Final = {
    "least": "1e-320",
    "near the least": "9e-309",
    "greatest": "1.7976931348623157e308",
    "300 digits": "0." + "1" * 300,
    "780 digits": f"1.{'1' * 780}e-300",
    "halfway": "2.4703282292062327208299439634110864618e-324",
}
AS_WRITTEN: Final = ("1e-320", "1E5", "0." + "1" * 300, "-0.0", "1.50", "1.0e+2", "123456789012345678901234567890")


def numbers(number: str) -> str:
    return ",".join([number] * (BYTES // (len(number) + 1)))


def plain(rest: str = "", reason: str = '"stop"', usage: str = "", message: str = "") -> bytes:
    return (
        '{"id":"a","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":'
        f'"assistant","content":"hi"{message}}},"finish_reason":{reason}{rest}}}],'
        f'"usage":{{"prompt_tokens":12.0,"completion_tokens":2{usage}}}}}'
    ).encode()


def token(number: str) -> str:
    return f'{{"token":"a","logprob":{number},"top_logprobs":[{{"token":"a","logprob":{number}}}]}}'


def with_odds(number: str) -> bytes:
    each = token(number)
    return plain(f',"logprobs":{{"content":[{",".join([each] * (BYTES // len(each)))}]}}')


def stream(inside: str, num_bytes: int) -> bytes:
    event = (
        'data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
        f'{{"content":"hi"}},"finish_reason":null,"logprobs":{{"content":[{inside}]}}}}]}}\n\n'
    )
    end = 'data: {"id":"a","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    return (event * max(1, num_bytes // len(event)) + end).encode()


def read_odds(answer: bytes) -> None:
    reader = LogprobReader()
    for begin in range(0, len(answer), 16 * 1024):
        reader.feed(answer[begin : begin + 16 * 1024])


PLACES: Final[dict[str, Callable[[str], bytes]]] = {
    "logprobs": with_odds,
    "choice": lambda number: plain(f',"own":[{numbers(number)}]'),
    "message": lambda number: plain(message=f',"own":[{numbers(number)}]'),
    "usage": lambda number: plain(usage=f',"own":[{numbers(number)}]'),
    "finish reason": lambda number: plain(reason=f"[{numbers(number)}]"),
    "error": lambda number: f'{{"error":{{"message":"x","param":[{numbers(number)}]}}}}'.encode(),
    "list": lambda number: f"[{numbers(number)}]".encode(),
    "not a number": lambda number: plain(f',"own":[NaN,{numbers(number)}]'),
}
READERS: Final[dict[str, Callable[[bytes], object]]] = {
    "end": end_of_plain,
    "usage": usage_of,
    "whole": is_whole,
    "odds": odds_of,
    "without odds": without_odds,
    "timing": lambda answer: merge_timing(answer, {"relay": 1.5}),
    "digest": digest_of,
    "needs": Needs(usage=True).are_met_by,
    "text": text_of,
    "refusal": lambda answer: enveloped(answer, 400, "a"),
    "document": document_of,
}
STREAMS: Final[dict[str, Callable[[str], bytes]]] = {
    "a token an event": lambda number: stream(token(number), BYTES),
    "many tokens an event": lambda number: stream(",".join([token(number)] * (100_000 // len(token(number)))), BYTES),
    "one event": lambda number: stream(",".join([token(number)] * (BYTES // 2 // len(token(number)))), 1),
    "errors": lambda number: f'data: {{"choices":[],"error":[{numbers(number)}]}}\n\n'.encode(),
}
STREAM_READERS: Final[dict[str, Callable[[bytes], object]]] = {
    "assembled": assembled,
    "stored": completion_of_stream,
    "outcome": end_of_stream,
    "odds": read_odds,
    "without odds": events_without_odds,
}


def seconds(work: Callable[[bytes], object], answer: bytes) -> float:
    """The thread's own time, the better of two: others work on this machine, too."""
    took = []
    for _ in range(2):
        began_at = time.thread_time()
        work(answer)
        took.append(time.thread_time() - began_at)
    return min(took)


def hold(work: Callable[[bytes], object], make: Callable[[str], bytes]) -> None:
    usual_s = seconds(work, make(HARMLESS))
    for name, number in NUMBERS.items():
        assert seconds(work, make(number)) < 4 * usual_s + 0.08, name


@pytest.mark.parametrize("make", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("work", READERS.values(), ids=READERS.keys())
def test_no_number_is_slower_to_read_than_another(
    work: Callable[[bytes], object], make: Callable[[str], bytes]
) -> None:
    hold(work, make)


@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS.keys())
@pytest.mark.parametrize("work", STREAM_READERS.values(), ids=STREAM_READERS.keys())
def test_no_number_of_a_stream_is_slower_to_read_than_another(
    work: Callable[[bytes], object], make: Callable[[str], bytes]
) -> None:
    hold(work, make)


@pytest.mark.parametrize("number", AS_WRITTEN)
@pytest.mark.parametrize("filler", [0, LONG_BYTES], ids=["short", "long"])
def test_a_number_survives_as_it_was_written(number: str, filler: int) -> None:
    own = f',"own":{{"n":[{number},"{"x" * filler}"]}}'
    answer, expected = plain(own + ',"logprobs":{"content":[]}', message=own), f'"n":[{number},'.encode()
    for changed in (
        without_odds(answer),
        merge_timing(answer, {"relay": 1.5}),
        as_event_stream(answer, include_usage=True),
    ):
        assert changed.count(expected) == 2
    event = f'data: {{"choices":[{{"index":0,"delta":{{"content":"x"{own}}},"finish_reason":"stop"{own}}}]{own}}}\n\n'
    completion = completion_of_stream(event.encode() + b"data: [DONE]\n\n")
    assert completion is not None
    assert completion.count(expected) == 3


@pytest.mark.parametrize("filler", [0, LONG_BYTES], ids=["short", "long"])
def test_counts_may_be_written_as_floats(filler: int) -> None:
    answer = plain(f',"own":"{"x" * filler}"')
    usage = usage_of(answer)
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (12, 2)
    assert end_of_plain(answer).is_lasting
    for odd in ("12.5", "1e-320", "-1.0", "1" * 100 + ".0"):
        assert usage_of(answer.replace(b"12.0", odd.encode())) is None


def test_a_list_with_numbers_that_comes_whole_each_time_stands_once() -> None:
    found = [{"url": "a", "score": 0.95}, {"url": "b", "score": 1e-3}]
    events = [{"choices": [{"index": 0, "delta": {"content": "x"}}], "citations": found[:num]} for num in (1, 1, 2)]
    events[-1]["choices"][0]["finish_reason"] = "stop"
    completion = completion_of_stream(b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events))
    assert completion is not None
    assert json.loads(completion)["citations"] == found


@pytest.mark.parametrize("size", [0, LONG_BYTES])
@pytest.mark.parametrize(
    ("rest", "is_lasting"),
    [("", True), (',"error":{}', True), (',"error":{"message":"x"}', False), (',"error":[1.5]', False)],
)
def test_a_long_answer_ends_as_a_short_one(rest: str, is_lasting: bool, size: int) -> None:
    answer = plain(f'{rest},"own":"{"x" * size}"')
    assert end_of_plain(answer).is_lasting is is_lasting
    event = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"%b,"own":"%b"}]}\n\n'
    assert end_of_stream(event % (rest.encode(), b"x" * size)).is_lasting is is_lasting


@pytest.mark.parametrize("size", [10, LONG_BYTES])
@pytest.mark.parametrize("where", ["error", "usage", "x_groq"])
def test_a_value_too_large_for_its_place_is_still_one(where: str, size: int) -> None:
    body: dict[str, Any] = json.loads(plain())
    body[where] = {"error": {"message": "x" * size}} if where == "x_groq" else {"message": "x" * size}
    end = end_of_plain(json.dumps(body).encode())
    assert (end.error is None, end.is_complete) == ((True, True) if where == "usage" else (False, False))


def test_documents_with_numbers_that_json_has_not_are_still_read() -> None:
    assert document_of(b'{"logprob": -Infinity, "a": 1}') == {"logprob": float("-inf"), "a": 1}
    assert document_of(b"\xef\xbb\xbf[1]") == [1]
    assert document_of(b"{") is None
    assert document_of(b"\xff\xfe") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'"x\ud83dy"', "x\ufffdy"),
        (r'"\uDE00"', "\ufffd"),
        (r'"\ud83d"', "\ufffd"),
        (r'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
        (r'"\ud83d\u0041"', "\ufffdA"),
        (r'"\\ud83d \\\ud83d"', "\\ud83d \\\ufffd"),
        (r'["\ud83d\ude00", NaN, "\n\""]', None),
    ],
)
def test_half_a_surrogate_pair_is_one_replacement_character(text: str, expected: str | None) -> None:
    found = document_of(text.encode())
    if expected is None:
        assert (found[0], found[2]) == ("\U0001f600", '\n"')
    else:
        assert found == expected


def test_many_halves_take_linear_time() -> None:
    begin = time.process_time()
    found = document_of(b'"' + rb"\ud83d\\" * 50_000 + b'"')
    assert found == "\ufffd\\" * 50_000
    assert time.process_time() - begin < 2.0
