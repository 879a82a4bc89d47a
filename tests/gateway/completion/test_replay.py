"""A cached response as the stream it could have been."""

from __future__ import annotations

import json

import pytest

from gateway.completion.replay import as_event_stream
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
    assert deltas[2]["delta"] == {"role": "assistant", "tool_calls": [{"index": 0, **call}]}
