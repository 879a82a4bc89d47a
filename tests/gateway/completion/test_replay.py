"""A cached response as the stream it could have been."""

from __future__ import annotations

import json

import pytest

from gateway.chat.schema import CONTENT_BLOCKS
from gateway.completion.assembly import assembled
from gateway.completion.replay import as_event_stream, id_member, reissued
from tests.gateway.cache.exact.test_cache_lookup import events


@pytest.mark.parametrize("include_usage", [True, False])
def test_every_choice_and_tool_call_is_replayed(include_usage: bool) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    choices = [
        {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"},
        {
            "index": 1,
            "message": {"role": "assistant", "content": None, "tool_calls": [call]},
            "finish_reason": "tool_calls",
        },
    ]
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": {"a": 1}}

    found = events(as_event_stream(json.dumps(answer).encode(), include_usage=include_usage))

    assert {event["object"] for event in found} == {"chat.completion.chunk"}
    assert all(("usage" in event) is include_usage for event in found)
    deltas = [choice for event in found for choice in event["choices"]]
    assert [(delta["index"], delta["finish_reason"]) for delta in deltas] == [
        (0, None),
        (0, "stop"),
        (1, None),
        (1, "tool_calls"),
    ]
    assert deltas[2]["delta"] == {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call}]}


def test_reasoning_is_replayed_ahead_of_the_answer() -> None:
    message = {"role": "assistant", "content": "4", "reasoning_content": "hm", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": {"content": []}, "finish_reason": "stop"}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    stream = as_event_stream(json.dumps(answer).encode(), include_usage=False)
    shown = [choice for event in events(stream) for choice in event["choices"]]
    assert [choice["delta"] for choice in shown] == [
        {"role": "assistant", "content": "", "reasoning_content": "hm"},
        {"content": "4", "refusal": None},
        {},
    ]
    assert [choice["logprobs"] for choice in shown[:2]] == [None, {"content": []}]
    completion = assembled(stream).completion
    assert completion is not None
    assert json.loads(completion)["choices"][0]["message"] == message


def test_reasoning_beside_native_parts_stays_there() -> None:
    block = {"index": 0, "type": "thinking", "thinking": "hm", "signature": "s"}
    message = {"role": "assistant", "content": "4", "reasoning_content": "hm", CONTENT_BLOCKS: [block]}
    answer = {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    shown = events(as_event_stream(json.dumps(answer).encode(), include_usage=False))
    assert [event["choices"][0]["delta"] for event in shown] == [message, {}]


def test_a_stored_answer_gets_an_id_and_a_time_of_its_own_and_nothing_else_changes() -> None:
    answer = b'{ "id": "chatcmpl-old", "created": 1, "odd" : 1.50, "choices": [{"id": "call_1", "text": "\\"id\\":"}] }'
    found = reissued(answer, serial="new", created=77)
    assert found == b'{"id":"chatcmpl-new","created":77,"odd":1.50,"choices":[{"id": "call_1", "text": "\\"id\\":"}]}'
    assert reissued(b'{"id":"cmpl-a"}', serial="b", created=7) == b'{"id":"cmpl-b","created":7}'


@pytest.mark.parametrize("answer", [b'{"object":"list","data":[]}', b'{"id":"a","x":NaN}', b"[]", b""])
def test_what_has_no_id_or_is_no_strict_json_stays_as_it_is(answer: bytes) -> None:
    assert reissued(answer, serial="new", created=77) == answer


@pytest.mark.parametrize(
    ("events", "found"),
    [
        (b'data: {"id":"chatcmpl-1a","choices":[]}\n\n', b'"id":"chatcmpl-1a"'),
        (b'data: {"id": "cmpl-1","choices":[]}\n\n', b'"id": "cmpl-1"'),
        (b'data: {"choices":[{"delta":{"tool_calls":[{"id":"call_1"}]}}]}\n\n', None),
    ],
)
def test_the_id_of_a_stream_is_found_as_it_is_written(events: bytes, found: bytes | None) -> None:
    assert id_member(events) == found
