"""A Messages client over a raw connection, and the rules of its event stream."""

from __future__ import annotations

import json
from typing import Any

from tests.gateway.stack import Reply, Stack

PATH = "/v1/messages"


def message(**fields: Any) -> dict[str, Any]:
    """A small request."""
    return {"model": "auto", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}], **fields}


async def post(stack: Stack, body: Any = None, **how: Any) -> Reply:
    """Send one request."""
    return await stack.call(message() if body is None else body, path=PATH, **how)


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream; each is named as its type."""
    found = []
    for part in stream.decode().split("\n\n"):
        if not part or part.startswith(":"):
            continue
        name, data = part.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def accumulated(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client puts together; holds the order of the events."""
    assert events[0]["type"] == "message_start"
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    found: dict[str, Any] = {**events[0]["message"]}
    blocks: list[dict[str, Any]] = []
    is_open = False
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert not is_open
            assert event["index"] == len(blocks)
            blocks.append(dict(event["content_block"]))
            is_open = True
        elif event["type"] == "content_block_delta":
            assert is_open
            assert event["index"] == len(blocks) - 1
            _add(blocks[-1], event["delta"])
        elif event["type"] == "content_block_stop":
            assert is_open
            assert event["index"] == len(blocks) - 1
            is_open = False
    assert not is_open
    for block in blocks:
        if "json" in block:
            block["input"] = json.loads(block.pop("json"))
    return {**found, "content": blocks, **events[-2]["delta"], "usage": events[-2]["usage"]}


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    kind = delta["type"]
    if kind == "text_delta":
        block["text"] += delta["text"]
    elif kind == "thinking_delta":
        block["thinking"] += delta["thinking"]
    elif kind == "signature_delta":
        block["signature"] = delta["signature"]
    elif kind == "input_json_delta":
        block["json"] = block.get("json", "") + delta["partial_json"]
    elif kind == "citations_delta":
        block.setdefault("citations", []).append(delta["citation"])
    else:
        raise AssertionError(kind)
