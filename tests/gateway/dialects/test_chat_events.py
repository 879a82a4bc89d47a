"""Events of a stream are the same values wherever the bytes were cut."""

from __future__ import annotations

import json

import pytest

from gateway.dialects.chat_events import ChatEvents
from gateway.errors import UpstreamFailed

STREAM = (
    b'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
    b": a comment\n\n"
    b'data: {"choices":[{"index":0,"delta":{"content":"caf\xc3\xa9"},"logprobs":null}],"unknown":{"a":[1]}}\r\n\r\n'
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f"}}]}}]}\n\n'
    b'data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
    b"data: [DONE]\n\n"
)


def texts(events: ChatEvents, pieces: list[bytes]) -> list[str]:
    """Return the texts of a stream that is fed in pieces."""
    found = [event for piece in pieces[:-1] for event in events.feed(piece)] + events.finish(pieces[-1])
    deltas = [choice.delta for event in found for choice in event.choices or () if choice.delta is not None]
    return [delta.content for delta in deltas if delta.content]


@pytest.mark.parametrize("cut", range(1, len(STREAM)))
def test_a_cut_anywhere_changes_nothing(cut: int) -> None:
    events = ChatEvents()
    assert texts(events, [STREAM[:cut], STREAM[cut:]]) == ["café"]
    assert events.is_done


def test_a_last_event_without_a_blank_line_counts() -> None:
    events = ChatEvents()
    assert texts(events, [b'data: {"choices":[{"delta":{"content":"end"}}]}']) == ["end"]


def test_an_event_of_another_form_is_the_upstreams_failure() -> None:
    with pytest.raises(UpstreamFailed, match="none of a chat completion"):
        ChatEvents().feed(b'data: {"choices":7}\n\n')


def test_an_event_that_is_no_json_is_the_upstreams_failure() -> None:
    with pytest.raises(UpstreamFailed, match="none of a chat completion"):
        ChatEvents().feed(b"data: <html>\n\n")


def test_a_call_in_the_older_spelling_is_one_tool_call() -> None:
    pieces = [{"name": "get", "arguments": '{"a"'}, {"arguments": ":1}"}]
    stream = b"".join(
        b"data: %b\n\n" % json.dumps({"choices": [{"delta": {"function_call": piece}}]}).encode() for piece in pieces
    )
    deltas = [choice.delta for event in ChatEvents().feed(stream) for choice in event.choices or ()]
    calls = [call for delta in deltas if delta is not None for call in delta.tool_calls or ()]
    assert [(call.index, call.id) for call in calls] == [(0, "get"), (0, None)]
    assert "".join(call.function.arguments or "" for call in calls if call.function is not None) == '{"a":1}'
