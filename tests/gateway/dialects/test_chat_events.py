"""Events of a stream are the same values wherever the bytes were cut."""

from __future__ import annotations

import json

import pytest

from gateway.dialects.chat_events import ChatEvent, ChatEvents
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


def event_with(delta: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":%b}]}\n\n' % delta.encode()


HALVES = event_with(r'{"content":"tide \ud83c"}') + event_with(r'{"content":"\udf0a high \uD83D"}')
BROKEN = event_with(r'{"content":"b\udf0a\\ud83c \ud83c"}') + event_with('{"content":"c"}')


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (HALVES + event_with(r'{"content":"\uDEA2."}'), "tide \U0001f30a high \U0001f6a2."),
        (HALVES, "tide \U0001f30a high \ufffd"),
        (HALVES + b"data: [DONE]\n\n", "tide \U0001f30a high \ufffd"),
        (BROKEN, "b\ufffd\\ud83c \ufffdc"),
        (event_with(r'{"content":"whole \ud83c\udf0a"}'), "whole \U0001f30a"),
        (event_with(r'{"content":"\ud83c\ud83c"}') + event_with(r'{"content":"\udf0a"}'), "\ufffd\U0001f30a"),
    ],
)
def test_half_a_surrogate_pair_meets_the_other_half(stream: bytes, expected: str) -> None:
    assert "".join(texts(ChatEvents(), [stream])) == expected
    for cut in range(1, len(stream)):
        assert "".join(texts(ChatEvents(), [stream[:cut], stream[cut:]])) == expected


def test_only_the_event_with_half_a_character_waits() -> None:
    events = ChatEvents()
    assert events.feed(event_with(r'{"content":"a\ud83c"}')) == []
    assert len(events.feed(event_with('{"content":"b"}'))) == 2
    assert len(events.feed(event_with('{"content":"c"}'))) == 1


def test_an_event_that_waits_comes_before_the_end() -> None:
    events = ChatEvents()
    events.feed(event_with(r'{"content":"a\ud83c"}'))
    (found,) = events.feed(b"data: [DONE]\n\n")
    assert found.choices is not None
    assert found.choices[0].delta is not None
    assert found.choices[0].delta.content == "a\ufffd"
    assert events.finish(b"") == []


def test_halves_in_pieces_of_arguments_meet() -> None:
    head, tail = '{"tool_calls":[{"index":0,"function":{"arguments":"', '"}}]}'
    stream = event_with(head + r"[\ud83c" + tail) + event_with(head + r"\udf0a]" + tail)
    assert "".join(arguments_in(ChatEvents().finish(stream))) == "[\U0001f30a]"


def arguments_in(events: list[ChatEvent]) -> list[str]:
    deltas = [choice.delta for event in events for choice in event.choices or () if choice.delta is not None]
    functions = [call.function for delta in deltas for call in delta.tool_calls or () if call.function is not None]
    return [function.arguments or "" for function in functions]


def test_parts_and_objects_are_texts() -> None:
    parts = event_with('{"content":[{"type":"text","text":"low "},{"type":"text","text":"tide"}]}')
    call = event_with('{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":{"at":1.50}}}]}')
    assert texts(ChatEvents(), [parts + call]) == ["low tide"]
    assert arguments_in(ChatEvents().finish(parts + call)) == ['{"at":1.50}']


def test_a_call_in_the_older_spelling_is_one_tool_call() -> None:
    pieces = [{"name": "get", "arguments": '{"a"'}, {"arguments": ":1}"}]
    stream = b"".join(
        b"data: %b\n\n" % json.dumps({"choices": [{"delta": {"function_call": piece}}]}).encode() for piece in pieces
    )
    deltas = [choice.delta for event in ChatEvents().feed(stream) for choice in event.choices or ()]
    calls = [call for delta in deltas if delta is not None for call in delta.tool_calls or ()]
    assert [(call.index, call.id) for call in calls] == [(0, "get"), (0, None)]
    assert "".join(call.function.arguments or "" for call in calls if call.function is not None) == '{"a":1}'
