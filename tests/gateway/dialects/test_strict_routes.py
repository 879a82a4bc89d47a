"""Routes that take fewer fields and images, behind the surfaces whose requests are translated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.dialects.messages.upstream.anthropic_server import CALL, REASONED, TEXT
from tests.gateway.stack import running

POLICY = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny}}
  - {{id: large, url: "unix:{folder}/large.sock", model: claude, dialect: anthropic}}
routes:
  - id: strict
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [small]}}
    unknown_fields: reject
    images: inline_only
"""
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}
ADDRESS = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
MESSAGE: dict[str, Any] = {
    "max_tokens": 64,
    "system": [{"type": "text", "text": "s", **EPHEMERAL}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "q", **EPHEMERAL}]},
        {"role": "assistant", "content": [REASONED, TEXT, {**CALL, **EPHEMERAL, "caller": {"type": "direct"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, **EPHEMERAL}]},
    ],
    "tools": [{"name": "get", "input_schema": {"type": "object"}, "defer_loading": False, **EPHEMERAL}],
    "thinking": {"type": "enabled", "budget_tokens": 2048},
    "output_config": {"effort": "low"},
    "metadata": {"user_id": "u"},
}
RESPONSE: dict[str, Any] = {
    "instructions": "be brief",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gA"},
        {"type": "function_call", "call_id": "c", "name": "get", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ],
    "tools": [{"type": "function", "name": "get", "parameters": {"type": "object"}, "strict": True}],
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "truncation": "disabled",
    "store": False,
    "metadata": {"a": "b"},
}


@pytest.mark.parametrize(("path", "body"), [("/v1/messages", MESSAGE), ("/v1/responses", RESPONSE)])
async def test_fields_of_the_clients_own_api_are_known(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        headers = {"anthropic-beta": "some-beta"}
        reply = await stack.call({"model": "auto", **body}, path=path, headers=headers)
        assert reply.status == 200, reply.body
        refused = await stack.call({"model": "auto", **body, "unheard_of": 1}, path=path)
        assert refused.status == 400
        assert "`unheard_of`" in refused.error["message"]


async def test_completions_are_held_to_the_rule(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        reply = await stack.call({"model": "auto", "prompt": "q", "unheard_of": 1}, path="/v1/completions")
        assert (reply.status, reply.error["param"]) == (400, "unheard_of")


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ([TEXT, ADDRESS], "messages[2].content[1].source.url"),
        (
            [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [ADDRESS]}],
            "messages[2].content[0].content[0].source.url",
        ),
        (
            [TEXT, {"type": "document", "source": {"type": "content", "content": [ADDRESS]}}],
            "messages[2].content[1].source.content[0].source.url",
        ),
    ],
)
async def test_a_refused_image_has_its_path_in_the_message(
    tmp_path: Path, content: list[dict[str, Any]], place: str
) -> None:
    messages = [*MESSAGE["messages"][:2], {"role": "user", "content": content}]
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        reply = await stack.call({"model": "auto", **MESSAGE, "messages": messages}, path="/v1/messages")
        assert reply.status == 400
        assert reply.error["message"].startswith(f"`{place}` ")
