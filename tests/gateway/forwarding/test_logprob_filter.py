"""Log probabilities that the gateway requested: read for the cascade, and hidden from the client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.forwarding.logprob_filter import LogprobReader, events_without_odds, odds_of, without_odds
from tests.gateway.forwarding.test_cascade import POLICY, SURE, engine, event, notified, text_of
from tests.gateway.scripted import Wire
from tests.gateway.stack import chat, running


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_odds_are_read_and_hidden_in_events_of_any_line_end(end: bytes) -> None:
    choice = {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [notified("a", -0.1)]}}
    for indent in (None, 1):
        lines = json.dumps({"choices": [choice]}, indent=indent).encode().split(b"\n")
        stream = b"".join(b"data:" + line + end for line in lines) + end
        reader = LogprobReader()
        reader.feed(stream + stream)
        assert len(reader.odds) == 2
        hidden = events_without_odds(stream + stream)
        assert hidden.count(b'"logprobs":null') == 2
        assert b"top_logprobs" not in hidden


@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_that_knows_no_log_probabilities_costs_nobody_an_answer(tmp_path: Path, stream: bool) -> None:
    async def without_odds(wire: Wire) -> None:
        if "logprobs" in wire.request.json:
            await wire.answer(b'{"error": {"message": "logprobs: not supported"}}', 400)
        else:
            await engine("a small answer came", SURE)(wire)

    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.otherwise = without_odds
        stack.large.otherwise = engine("a large answer came", SURE)
        reply = await stack.call(chat(stream=stream))
        assert (reply.status, text_of(reply.body)) == (200, "alargeanswercame"), "nobody can judge the small one's"
        stack._live()[1].is_ready = False
        reply = await stack.call(chat(stream=stream))
        assert (reply.status, text_of(reply.body)) == (200, "asmallanswercame"), "asked as it came"
        reply = await stack.call(chat(stream=stream, logprobs=True))
        assert reply.status == 400, "it was the client who asked for them"


def test_odds_are_read_whatever_the_seams() -> None:
    stream = b"".join(
        b"data: " + event({"delta": {"content": word}, "logprobs": {"content": [notified(word, -0.5)]}}) + b"\n\n"
        for word in "abc"
    )
    stream += b": keep-alive\n\ndata: " + event({"delta": {}, "finish_reason": "stop"}) + b"\n\ndata: [DONE]\n\n"
    for size in (1, 7, 64, 10_000):
        reader = LogprobReader()
        for start in range(0, len(stream), size):
            reader.feed(stream[start : start + size])
        assert [(token.logprob, token.margin) for token in reader.odds] == [(-0.5, 2.0)] * 3
        assert reader.is_whole


def test_without_a_second_choice_the_rest_of_the_probability_is_its() -> None:
    answer = b'{"choices":[{"logprobs":{"content":[{"logprob":-0.6931471805599453}]},"finish_reason":"stop"}]}'
    (token,), is_whole = odds_of(answer)
    assert is_whole
    assert abs(token.margin) < 1e-6
    assert odds_of(b'{"choices":[{"logprobs":{"content":[{"logprob":0.0}]}}]}')[0][0].margin > 15


@pytest.mark.parametrize("body", [b"", b"[DONE]", b"{", b'{"choices":[]}', b'{"choices":[{"logprobs":null}]}', b"\xff"])
def test_what_reports_no_odds_reports_none_and_is_left_alone(body: bytes) -> None:
    assert odds_of(body) == ([], False)
    assert without_odds(body) == body
    assert events_without_odds(body) == body


def test_only_the_odds_are_taken_out() -> None:
    stated_event = event({"delta": {"content": "a"}, "logprobs": {"content": [notified("a", -0.1)]}})
    plain = event({"delta": {"content": "a"}})
    stream = b"data: %b\n\n: comment\n\ndata: [DONE]\n\n"
    assert events_without_odds(stream % stated_event) == stream % plain


def tokens(*texts: str) -> list[dict[str, object]]:
    return [notified(text, -float(place)) for place, text in enumerate(texts, 1)]


@pytest.mark.parametrize(
    ("text", "logprobs", "found"),
    [
        ({"reasoning_content": "hm"}, {"content": tokens("hm")}, []),
        ({"reasoning": "hm", "content": ""}, {"content": tokens("hm")}, []),
        ({"reasoning_content": "", "content": "a"}, {"content": tokens("a")}, [-1.0]),
        ({"reasoning_content": "hm", "content": "ab c"}, {"content": tokens("hm", "</x>", "ab", " c")}, [-3.0, -4.0]),
        ({"reasoning_content": "hm", "content": "a"}, {"content": tokens("a"), "reasoning_content": []}, [-1.0]),
        ({"reasoning_content": "hm", "content": "a"}, {"content": [], "reasoning_content": tokens("hm")}, []),
        ({"reasoning_content": "hm", "content": ["odd"]}, {"content": tokens("hm", "a")}, []),
    ],
)
@pytest.mark.parametrize("member", ["delta", "message"])
def test_reasoning_does_not_count(
    member: str, text: dict[str, object], logprobs: dict[str, object], found: list[float]
) -> None:
    odds, _ = odds_of(event({member: text, "logprobs": logprobs}))
    assert [token.logprob for token in odds] == found


def test_a_character_of_several_tokens_is_counted_in_bytes() -> None:
    parts = [{**notified("\ufffd", -2.0), "bytes": [byte]} for byte in "é".encode()]
    choice = {"delta": {"reasoning": "hm", "content": "é"}, "logprobs": {"content": [*tokens("hm"), *parts]}}
    assert [token.logprob for token in odds_of(event(choice))[0]] == [-2.0, -2.0]
