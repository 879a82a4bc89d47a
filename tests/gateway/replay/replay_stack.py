"""A gateway that records answers, over scripted upstreams, and its replays."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.gateway.scripted import Script, Wire
from tests.gateway.stack import Stack

SETTINGS: Final = {"telemetry.recorder.mode": "answers"}


def answers_with(text: str, state: str | None = None, fingerprint: str | None = None) -> Script:
    """Return a script that answers with a text, and states a model where it is requested to."""

    async def script(wire: Wire) -> None:
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "tiny",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
            **({} if fingerprint is None else {"system_fingerprint": fingerprint}),
        }
        is_wanted = state is not None and wire.request.headers.get("x-penstock-model-state") == "1"
        headers = {"x-penstock-model-state": state} if is_wanted and state is not None else {}
        await wire.answer(json.dumps(answer).encode(), headers=headers)

    return script


async def replayed(stack: Stack, request_id: str, **order: Any) -> dict[str, Any]:
    """Replay a recorded answer through the admin API."""
    reply = await stack.call({"id": request_id, **order}, path="/admin/api/replay", admin=True)
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json["replay"]
    return found


def factor(found: dict[str, Any], name: str) -> dict[str, Any]:
    """Return one factor of a report."""
    (one,) = [each for each in found["factors"] if each["factor"] == name]
    return dict(one)
