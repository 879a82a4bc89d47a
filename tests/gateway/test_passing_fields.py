"""What a deployment gets of a request: everything as it was written, unless the route is stricter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.scripted import COMPLETION, Wire
from tests.gateway.stack import Reply, Stack, chat, policy_text, running

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
NEW: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": [IMAGE, {"type": "file", "file": {"file_id": "f"}}]}]},
    {"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "https://a/b"}}]}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "c", "content": [IMAGE]}]},
    {"tools": [{"type": "custom", "custom": {"name": "sh"}}, {"type": "web_search", "filters": {"x": [1]}}]},
    {"tools": [{"type": "function", "function": {"name": f"mcp.tool.{number}"}} for number in range(129)]},
    {"chat_template_kwargs": {"enable_thinking": False, "x": {"y": 1}}, "thinking": {"type": "enabled"}},
    {
        "response_format": {"type": "structural_tag", "structures": [], "triggers": ["<a>"]},
        "provider": {"order": ["a"]},
    },
    {"max_completion_tokens": 0, "reasoning_effort": "none", "modalities": ["text", "audio"], "audio": {"voice": "a"}},
]


async def answer(wire: Wire) -> None:
    await wire.answer(COMPLETION)


@pytest.mark.parametrize("fields", NEW)
async def test_what_new_clients_send_reaches_the_deployment_verbatim(tmp_path: Path, fields: dict[str, Any]) -> None:
    async with running(tmp_path) as stack:
        for padding in (0, 100_000):
            stack.small.scripts = [answer]
            body = json.dumps(chat("solo", **fields, x_padding="x" * padding)).replace("/", "\\/").encode()
            reply = await stack.call(body)
            assert reply.status == 200, reply.body
            assert stack.small.received[-1].body == body.replace(b'"solo"', b'"tiny"')


STRICT = "\n    images: inline_only\n    unknown_fields: reject\n"


async def strict_call(stack: Stack, **fields: Any) -> Reply:
    stack.small.scripts = [answer]
    return await stack.call(chat("solo", **fields))


async def test_a_route_may_refuse_unknown_fields_and_addresses(tmp_path: Path) -> None:
    policy = policy_text(tmp_path).rstrip() + STRICT
    async with running(tmp_path, policy=policy) as stack:
        assert (await strict_call(stack, top_p=1, verbosity="low")).status == 200
        unknown = await strict_call(stack, messages=[{"role": "user", "content": "a", "x": 1}])
        assert (unknown.status, unknown.error["param"]) == (400, "messages[0].x")
        long = await strict_call(stack, x="y" * 200_000)
        assert (long.status, long.error["param"]) == (400, "x")
        image = await strict_call(stack, messages=[{"role": "user", "content": [IMAGE]}])
        assert (image.status, image.error["param"]) == (400, "messages[0].content[0].image_url.url")
        assert len(stack.small.received) == 1


async def test_a_deployments_refusal_is_in_the_log_and_in_the_explanation(tmp_path: Path) -> None:
    async def refuse(wire: Wire) -> None:
        await wire.answer(b'{"error": {"message": "no such voice: sk-abcdefghij0123456789", "code": "bad_voice"}}', 400)

    async with running(tmp_path) as stack:
        stack.small.scripts = [refuse]
        reply = await stack.call(chat("solo"))
        assert reply.status == 400
        await stack.until_idle()
        (line,) = stack.lines()
        assert (line["code"], line["outcome"]) == ("bad_voice", "rejected")
        assert line["detail"].startswith("upstream status 400: no such voice: ")
        path = f"/admin/api/requests/{reply.headers['x-request-id']}"
        found = (await stack.get(path, admin=True)).json["request"]
        assert (found["code"], found["detail"]) == ("bad_voice", line["detail"])
        assert "sk-abcdefghij0123456789" not in line["detail"]
