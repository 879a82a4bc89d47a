"""Scripts and readers that the tests of the Responses API share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.gateway.scripted import Script, Wire
from tests.gateway.stack import Reply, Stack

PATH = "/v1/responses"


def requested(**fields: Any) -> dict[str, Any]:
    """A small request."""
    return {"model": "auto", "input": "hi", **fields}


async def create(stack: Stack, **fields: Any) -> Reply:
    """Send a request."""
    return await stack.call(requested(**fields), path=PATH)


def events_of(body: bytes) -> list[dict[str, Any]]:
    """The events of a stream, whose names are their types."""
    found = []
    for part in body.decode().split("\n\n"):
        if part:
            name, data = part.split("\n")
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def types_of(body: bytes) -> list[str]:
    """The types of a stream's events, in order and without `response.`."""
    return [event["type"].removeprefix("response.") for event in events_of(body)]


def delta(finish: str | None = None, usage: dict[str, Any] | None = None, **members: Any) -> bytes:
    """An event of a chat completion."""
    choices = [] if usage else [{"index": 0, "delta": members, "finish_reason": finish}]
    event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny", "choices": choices}
    return json.dumps({**event, "usage": usage} if usage else event).encode()


USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}


def call(index: int, *, id: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    """A piece of a tool call."""
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    piece: dict[str, Any] = {"index": index, "function": function}
    return piece if id is None else {**piece, "id": id, "type": "function"}


def streaming(*events: bytes, end: bool = True) -> Script:
    """A script that sends events, then the end mark."""

    async def run(wire: Wire) -> None:
        await wire.start_stream()
        for event in events:
            await wire.event(event)
        if end:
            await wire.event(b"[DONE]")
            await wire.end()

    return run


def answering(message: dict[str, Any], finish: str = "stop", **members: Any) -> Script:
    """A script that answers with a whole completion."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    completion = {"id": "c", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice], **members}

    async def run(wire: Wire) -> None:
        await wire.answer(json.dumps(completion).encode())

    return run


def replying(document: Any, status: int = 200) -> Script:
    """A script that answers with a JSON document."""

    async def run(wire: Wire) -> None:
        await wire.answer(json.dumps(document).encode(), status)

    return run


def sse(events: Sequence[dict[str, Any]]) -> bytes:
    """Events of a Responses stream as bytes."""
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode()) for event in events
    )
