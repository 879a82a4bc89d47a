"""What a route's condition learns of a real request, and that routes without one never call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.routing.facts import RequestFacts
from tests.gateway.stack import chat, policy_text, running

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}


def parsed(messages: list[dict[str, Any]], **fields: Any) -> ChatRequest:
    return ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages, **fields}).encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("turns", 2),
        ("has_images", True),
        ("has_tools", True),
        ("stream", False),
        ("text", "and this?"),
        ("model", "auto"),
    ],
)
def test_a_fact_is_what_the_request_states(name: str, value: object) -> None:
    notified = [{"type": "text", "text": "and this?"}, IMAGE]
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    request = parsed([*messages, {"role": "user", "content": notified}], tools=[TOOL])
    assert RequestFacts(request).fact(name) == value


async def test_a_condition_sends_requests_to_their_routes(tmp_path: Path) -> None:
    when = 'match: {models: [auto], when: \'request.text.contains("refund") && headers["x-plan"] == "gold"\'}'
    text = policy_text(tmp_path).replace("match: {models: [auto]}", when)
    async with running(tmp_path, policy=text) as stack:
        requested = {**chat(), "messages": [{"role": "user", "content": "a refund, please"}]}
        gold = {"x-plan": "gold"}
        for body, headers, route in (
            (requested, gold, "main"),
            (requested, {}, "implied-auto"),
            (chat(), gold, "implied-auto"),
        ):
            assert (await stack.call(body, headers=headers)).headers["x-penstock-route"] == route
