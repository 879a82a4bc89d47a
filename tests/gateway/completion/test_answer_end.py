"""Single facts read from an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.completion.answer_end import end_of_plain, has_first_token, merge_timing, usage_of
from gateway.completion.stream_outcome import end_of_stream
from tests.gateway.scripted import COMPLETION, chunk


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


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


@pytest.mark.parametrize("figure", ["1" + "0" * 30, str(2**63), "1000000001", "1e30", "1e400", "-1", "2.5"])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
@pytest.mark.parametrize("odd", ["", ',"logprobs":-Infinity'], ids=["plain", "odd"])
def test_an_impossible_figure_makes_a_usage_unknown(name: str, figure: str, odd: str) -> None:
    counts = {"prompt_tokens": "7", "completion_tokens": "2"} | {name: figure}
    usage = ",".join(f'"{key}":{value}' for key, value in counts.items())
    answer = f'{{"choices":[]{odd},"usage":{{{usage}}}}}'.encode()
    assert usage_of(answer) is None
    end = end_of_stream(b"data: " + answer + b"\n\n")
    assert end.usage is None


def test_the_largest_possible_figure_counts() -> None:
    found = usage_of(b'{"usage":{"prompt_tokens":1000000000,"completion_tokens":1000000000}}')
    assert found is not None
    assert (found.prompt_tokens, found.completion_tokens) == (10**9, 10**9)


def test_cached_tokens_are_read() -> None:
    usage = usage_of(b'{"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}}')

    assert usage is not None
    assert usage.cached_tokens == 8


def test_timing_is_merged_beside_what_is_there() -> None:
    merged = json.loads(merge_timing(b'{"a":1,"penstock":{"x":2,"timing":{"engine":3}}}', {"queue": 0.5}))

    assert merged == {"a": 1, "penstock": {"x": 2, "timing": {"engine": 3, "gateway": {"queue": 0.5}}}}
    assert json.loads(merge_timing(COMPLETION, {}))["penstock"] == {"timing": {"gateway": {}}}


@pytest.mark.parametrize(
    "answer",
    [
        b'{"usage": {"prompt_tokens": 9, "completion_tokens": 4}}',
        b'{"choices": [{"index": 0, "delta": {}, "usage": {"prompt_tokens": 9, "completion_tokens": 4}}]}',
        b'{"choices": [], "usage": null, "x_groq": {"usage": {"prompt_tokens": 9, "completion_tokens": 4}}}',
        b'{"usage": {"prompt_tokens": 9.0, "completion_tokens": 4, "prompt_tokens_details": []}}',
        b'{"logprob": -Infinity, "usage": {"completion_tokens": 4, "prompt_tokens": 9, "cost": 0.1}}',
    ],
)
def test_usage_is_found_wherever_it_stands(answer: bytes) -> None:
    usage = usage_of(answer)

    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (9, 4)


@pytest.mark.parametrize("answer", [b"", b"[1]", b"nonsense", b"\xff"])
def test_what_is_no_object_is_left_alone(answer: bytes) -> None:
    assert merge_timing(answer, {}) == answer


@pytest.mark.parametrize(
    ("body", "is_complete", "has_error"),
    [
        (COMPLETION, True, False),
        (b'{"choices":[{"index":0,"message":{},"finish_reason":null}]}', True, False),
        (b'{"choices":[{"finish_reason":"stop"},{"finish_reason":null}]}', False, False),
        (b'{"choices":[{"finish_reason":"error"}]}', False, True),
        (b'{"choices":[{"finish_reason":"stop"}],"error":{"message":"x"}}', False, True),
        (b'{"choices":[{"finish_reason":"stop"}],"error":null}', True, False),
        (b'{"choices":[]}', False, False),
        (b'{"choices":null,"error":"boom"}', False, True),
        (b'{"detail":"x"}', False, True),
        (b'{"object":"error","message":"x"}', False, True),
        (b'{"choices":[{"finish_reason":"stop","logprobs":-Infinity}]}', True, False),
        (b'{"choices":[{"finish_reason":"stop"}', False, False),
        (b'{"choices":[{"finish_reason":"stop","message":{"content":"a\xff\xfeb"}}]}', False, False),
        ('{"choices":[{"finish_reason":"stop","message":{"content":"é😀"}}]}'.encode(), True, False),
        (b"", False, False),
        (b"[]", False, False),
        (b"<html>", False, False),
        (b'{"choices":[' + b",".join([b"{}"] * 1_000_000) + b"]}", True, False),
    ],
)
def test_a_plain_answer_ends_by_the_same_rules(body: bytes, is_complete: bool, has_error: bool) -> None:
    end = end_of_plain(body)
    assert (end.is_complete, end.error is not None) == (is_complete, has_error)


@pytest.mark.parametrize("written", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_null_in_the_answer_that_clients_get(written: str) -> None:
    end = end_of_plain(f'{{"x":1.50,"choices":[{{"finish_reason":"stop","logprobs":{written}}}]}}'.encode())
    assert end.mended == b'{"x":1.50,"choices":[{"finish_reason":"stop","logprobs":null}]}'
    assert end_of_plain(COMPLETION).mended is None


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"accepted_prediction_tokens": 5, "rejected_prediction_tokens": 2}, (5, 2)),
        ({"accepted_prediction_tokens": 5}, (5, 0)),
        ({"reasoning_tokens": 5}, None),
        (None, None),
        ({"accepted_prediction_tokens": "5"}, None),
    ],
)
def test_what_became_of_a_prediction_is_read(details: Any, expected: tuple[int, int] | None) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 9, "completion_tokens_details": details}
    for document in ({"usage": usage}, {"choices": [{"usage": usage}]}):
        found = usage_of(json.dumps(document).encode())
        assert found is not None
        assert found.completion_tokens == 9
        assert found.predicted_tokens == expected
