"""Answers as bytes: valid JSON in OpenAI's shapes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.frontend.http.wire import AnswerIdentity, ChatWire, CollectedChoice, CompletionWire, TokenUsage, Wire
from engine.frontend.text.choice import Choice, Delta, TokenEntry
from engine.frontend.tools.call_scanner import CallDelta
from engine.protocol import SeqOutput

USAGE = TokenUsage(prompt_tokens=3, completion_tokens=2, cached_tokens=1)
ENTRY = TokenEntry(1, -0.5, ((1, -0.5), (2, -1.5)), 7)


def identity(*, include_usage: bool = False) -> AnswerIdentity:
    vocabulary = {1: b"a", 2: b"\xff"}
    return AnswerIdentity(
        id='x"1', created=5, model="tiny", include_usage=include_usage, token_bytes=vocabulary.__getitem__
    )


def event(data: bytes) -> Any:
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    assert data.count(b"\n") == 2
    return json.loads(data[6:])


@pytest.mark.parametrize("wire", [ChatWire(identity()), CompletionWire(identity())])
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_makes_one_valid_event(wire: Wire, text: str) -> None:
    choice = event(wire.delta(3, Delta(text)))["choices"][0]
    assert choice["index"] == 3
    assert choice.get("text", choice.get("delta", {}).get("content")) == text


def test_chat_events_have_their_shapes() -> None:
    wire = ChatWire(identity(include_usage=True))
    head = {"id": 'x"1', "object": "chat.completion.chunk", "created": 5, "model": "tiny"}
    opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    assert event(wire.opening(0)) == {**head, "choices": [opening], "usage": None}
    opening["delta"] = {"role": "assistant", "content": None}
    assert event(wire.opening(0, has_text=False))["choices"] == [opening]
    ending = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    assert event(wire.finish(0, "length", {"x": 1})) == {**head, "choices": [ending], "usage": None, "x": 1}
    assert event(wire.usage(USAGE, None)) == {**head, "choices": [], "usage": USAGE.as_json()}


def test_chat_log_probabilities_have_tokens_bytes_and_alternatives() -> None:
    content = event(ChatWire(identity()).delta(0, Delta("a", (ENTRY,))))["choices"][0]["logprobs"]["content"]
    first = {"token": "a", "logprob": -0.5, "bytes": [97]}
    second = {"token": "\ufffd", "logprob": -1.5, "bytes": [255]}
    assert content == [{**first, "top_logprobs": [first, second]}]


def test_completion_events_have_their_shapes() -> None:
    wire = CompletionWire(identity())
    assert wire.opening(0, has_text=False) == b""
    choice = event(wire.delta(1, Delta("a", (ENTRY,))))["choices"][0]
    assert choice == {
        "index": 1,
        "text": "a",
        "logprobs": {
            "tokens": ["a"],
            "token_logprobs": [-0.5],
            "top_logprobs": [{"a": -0.5, "bytes:\\xff": -1.5}],
            "text_offset": [7],
        },
        "finish_reason": None,
    }
    assert event(wire.finish(1, "stop", None))["choices"][0]["text"] == ""


@pytest.mark.parametrize(
    ("wire", "kind", "member"),
    [
        (ChatWire(identity()), "chat.completion", {"message": {"role": "assistant", "content": "ab", "refusal": None}}),
        (CompletionWire(identity()), "text_completion", {"text": "ab"}),
    ],
)
def test_bodies_have_their_shapes(wire: Wire, kind: str, member: dict[str, Any]) -> None:
    choice = Choice(0, bytes, frozenset(), finish="stop")
    body = json.loads(wire.body([CollectedChoice(choice, ["a", "b"], [])], USAGE, {"extra": 1}))
    assert body == {
        "id": 'x"1',
        "object": kind,
        "created": 5,
        "model": "tiny",
        "choices": [{"index": 0, **member, "logprobs": None, "finish_reason": "stop"}],
        "usage": USAGE.as_json(),
        "extra": 1,
    }


def test_pieces_of_calls_are_events_of_their_own_and_a_body_has_whole_calls() -> None:
    wire = ChatWire(identity())
    pieces = (CallDelta(index=0, id="c", name="f"), CallDelta(index=0, arguments='{"a"'))
    sent = wire.delta(0, Delta("hi", calls=pieces)).decode().strip().split("\n\n")
    deltas = [json.loads(event.removeprefix("data: "))["choices"][0]["delta"] for event in sent]
    assert deltas == [
        {"content": "hi"},
        {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
    ]
    choice = Choice(0, bytes, frozenset(), finish="tool_calls")
    rest = CallDelta(index=0, arguments=": 1}")
    body = json.loads(wire.body([CollectedChoice(choice, [""], [], [*pieces, rest])], USAGE, None))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    assert body["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [call],
    }
    assert body["choices"][0]["finish_reason"] == "tool_calls"


def test_reasoning_is_an_event_of_its_own_and_a_member_of_the_message() -> None:
    wire = ChatWire(identity())
    delta = Delta("hi", (ENTRY,), reasoning="hm", reasoning_entries=(ENTRY, ENTRY))
    sent = [json.loads(part.removeprefix("data: ")) for part in wire.delta(0, delta).decode().strip().split("\n\n")]
    first, second = (event["choices"][0] for event in sent)
    assert (first["delta"], second["delta"]) == ({"reasoning_content": "hm"}, {"content": "hi"})
    assert (first["logprobs"]["content"], len(first["logprobs"]["reasoning_content"])) == ([], 2)
    assert (len(second["logprobs"]["content"]), second["logprobs"].keys()) == (1, {"content", "refusal"})
    call = CallDelta(index=0, id="c", name="f")
    kinds = [
        [*json.loads(part[6:])["choices"][0]["delta"]]
        for part in wire.delta(0, Delta(calls=(call,), reasoning="hm")).split(b"\n\n")[:-1]
    ]
    assert kinds == [["reasoning_content"], ["tool_calls"]]

    answer = CollectedChoice(Choice(0, bytes, frozenset(), finish="stop"), [], [])
    answer.add(delta)
    usage = TokenUsage(prompt_tokens=3, completion_tokens=2, cached_tokens=1, reasoning_tokens=1)
    body = json.loads(wire.body([answer], usage, None))
    assert body["choices"][0]["message"] == {
        "role": "assistant", "content": "hi", "refusal": None, "reasoning_content": "hm",
    }  # fmt: skip
    assert {name: len(found or ()) for name, found in body["choices"][0]["logprobs"].items()} == {
        "content": 1, "refusal": 0, "reasoning_content": 2,
    }  # fmt: skip
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 1}


def test_the_sampled_token_is_always_among_the_top_ones_of_a_completion() -> None:
    vocabulary = {1: b"a", 2: b"\xf0\x9f", 3: b"\x98", 4: "é".encode(), 5: b"a"}
    names = AnswerIdentity(id="x", created=5, model="m", include_usage=False, token_bytes=vocabulary.__getitem__)
    entries = (
        TokenEntry(4, -6.0, ((2, -0.25), (3, -0.5)), 0),
        TokenEntry(3, -0.125, (), 1),
        TokenEntry(1, -0.5, ((1, -0.5), (5, -4.0)), 1),
    )
    logprobs = event(CompletionWire(names).delta(0, Delta("x", entries)))["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["é", "bytes:\\x98", "a"]
    assert logprobs["top_logprobs"] == [
        {"bytes:\\xf0\\x9f": -0.25, "bytes:\\x98": -0.5, "é": -6.0},
        {"bytes:\\x98": -0.125},
        {"a": -0.5},
    ]


@pytest.mark.parametrize("kind", [ChatWire, CompletionWire])
@pytest.mark.parametrize("matched", ['E"D', None])
def test_each_choice_names_the_stop_string_that_ended_it_on_request(
    kind: type[ChatWire | CompletionWire], matched: str | None
) -> None:
    choice = Choice(0, lambda _: b'ab E"D', frozenset(), stops=['E"D'] if matched else [])
    delta = choice.feed(SeqOutput(seq_id=0, token_ids=[1], finish_reason="length"))
    assert delta.finish == ("stop" if matched else "length")
    for shows_stop in (True, False):
        wire = kind(dataclasses.replace(identity(), shows_stop=shows_stop))
        body = json.loads(wire.body([CollectedChoice(choice, ["ab "], [])], USAGE, None))
        last = event(wire.finish(0, "stop", {"x": 1}, matched=choice.matched_stop))
        found = [document["choices"][0] for document in (body, last)]
        assert last["x"] == 1
        assert [one.get("stop_reason", "none") for one in found] == [matched if shows_stop else "none"] * 2
