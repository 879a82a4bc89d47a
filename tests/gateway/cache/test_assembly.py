"""A stream and the completion made of it say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.cache.assembly import completion_of_stream, is_whole
from gateway.cache.replay import as_event_stream

COMPLETION: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 7,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Zwölf Äpfel"},
            "logprobs": {"content": [{"token": "Z"}, {"token": "w"}]},
            "finish_reason": "stop",
        },
        {
            "index": 1,
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
                    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        },
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
}


def event(choice: dict[str, Any], **more: Any) -> bytes:
    return (
        b"data: " + json.dumps({"id": "x", "created": 1, "model": "m", "choices": [choice], **more}).encode() + b"\n\n"
    )


def test_replayed_and_assembled_again_it_is_the_same_completion() -> None:
    stream = as_event_stream(json.dumps(COMPLETION).encode(), include_usage=True)
    assembled = completion_of_stream(stream)
    assert assembled is not None
    assert json.loads(assembled) == COMPLETION


@pytest.mark.parametrize("reason", ["abort", "error", "content_filter", None])
def test_a_stream_that_did_not_end_by_itself_is_not_kept(reason: str | None) -> None:
    pieces = [
        event({"index": 0, "delta": {"role": "assistant", "content": "Hel"}, "finish_reason": None}),
        event({"index": 0, "delta": {}, "finish_reason": reason}),
    ]
    assert completion_of_stream(b"".join([*pieces, b"data: [DONE]\n\n"])) is None


def test_pieces_are_joined_in_order() -> None:
    pieces = [{"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"}, {}]
    stream = b"".join(
        event({"index": 0, "delta": delta, "finish_reason": "stop" if not delta else None}) for delta in pieces
    )
    assembled = completion_of_stream(b": keep-alive\n\n" + stream + b"data: [DONE]\n\n")
    assert assembled is not None
    assert json.loads(assembled)["choices"][0]["message"]["content"] == "Hello"
    assert is_whole(assembled)


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        event({"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}),
        event({"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}) + b"data: [DONE]\n\n",
        b'data: {"error": {"message": "x"}}\n\ndata: [DONE]\n\n',
        b"data: {broken\n\ndata: [DONE]\n\n",
        b"data: 7\n\ndata: [DONE]\n\n",
        b"data: [DONE]\n\n",
    ],
)
def test_what_is_not_whole_is_not_kept(stream: bytes) -> None:
    assert completion_of_stream(stream) is None


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"choices": []}', b'{"choices": [{"finish_reason": null}]}'])
def test_a_plain_answer_that_is_no_completion_is_not_whole(body: bytes) -> None:
    assert not is_whole(body)
