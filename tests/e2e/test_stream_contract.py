"""Streams as the wire guarantees them, event by event."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.conftest import Stack
from tests.e2e.raw import TIMEOUT_S, chat, request

pytestmark = pytest.mark.e2e

FINISH_REASONS = {"stop", "length", "tool_calls", "content_filter"}


def stream(stack: Stack, **fields: Any) -> list[dict[str, Any]]:
    """The events of one stream, after a check its framing."""
    body = chat(stream=True, **fields)
    response = httpx.post(f"{stack.base_url}/chat/completions", json=body, timeout=120.0)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *blocks, rest = response.text.split("\n\n")
    assert rest == ""
    reported = [block for block in blocks if not block.startswith(":")]
    assert all(block.startswith("data: ") and "\n" not in block for block in reported)
    assert reported[-1] == "data: [DONE]"
    assert reported.count("data: [DONE]") == 1
    return [json.loads(block.removeprefix("data: ")) for block in reported[:-1]]


@pytest.mark.parametrize("num_choices", [1, 2])
def test_one_id_created_and_model_for_all_events_and_the_role_first(stack: Stack, num_choices: int) -> None:
    reported = stream(stack, n=num_choices)
    for name in ("id", "created", "model", "object"):
        assert len({event[name] for event in reported}) == 1
    assert reported[0]["object"] == "chat.completion.chunk"
    for index in range(num_choices):
        own = [choice for event in reported for choice in event["choices"] if choice["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert all("role" not in choice["delta"] for choice in own[1:])
        reasons = [choice["finish_reason"] for choice in own]
        assert reasons[-1] in FINISH_REASONS
        assert set(reasons[:-1]) <= {None}


def test_usage_comes_last_without_choices_and_is_null_before(stack: Stack) -> None:
    *before, last = stream(stack, stream_options={"include_usage": True})
    assert all(event["usage"] is None and event["choices"] for event in before)
    assert last["choices"] == []
    usage = last["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 1 <= usage["completion_tokens"] <= 4


def test_usage_unasked_is_absent(stack: Stack) -> None:
    reported = stream(stack)
    assert all(event["choices"] for event in reported)
    assert all(event.get("usage") is None for event in reported)


def test_the_text_is_that_of_the_plain_answer(stack: Stack) -> None:
    fields: dict[str, Any] = {"model": "penstock-small", "temperature": 0, "max_tokens": 12}
    plain = httpx.post(f"{stack.base_url}/chat/completions", json=chat(**fields), timeout=120.0).json()
    reported = stream(stack, **fields)
    text = "".join(choice["delta"].get("content") or "" for event in reported for choice in event["choices"])
    assert text == plain["choices"][0]["message"]["content"]
    assert reported[-1]["choices"][0]["finish_reason"] == plain["choices"][0]["finish_reason"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"max_tokens": 1}, "length"), ({"max_tokens": 1000, "stop": list("abcdefghijklmnop")}, "stop")],
)
def test_the_finish_reason_is_one_of_the_four(stack: Stack, fields: dict[str, Any], reason: str) -> None:
    finishes = [c["finish_reason"] for e in stream(stack, temperature=0, **fields) for c in e["choices"]]
    assert finishes[-1] == reason


def test_a_stream_leaves_the_connection_open_for_the_next_request(stack: Stack) -> None:
    with httpx.Client(timeout=120.0) as client:
        for _ in range(2):
            response = client.post(f"{stack.base_url}/chat/completions", json=chat(stream=True))
            assert response.text.endswith("data: [DONE]\n\n")
            assert response.headers.get("connection") != "close"


def test_the_status_line_waits_until_the_request_is_admitted(stack: Stack) -> None:
    where = urlsplit(stack.url)
    assert where.hostname is not None
    assert where.port is not None
    with socket.create_connection((where.hostname, where.port), TIMEOUT_S) as connection:
        late = request(chat(stream=True), headers={"x-stainless-timeout": "0.000001"})
        connection.sendall(late)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 503 ")
