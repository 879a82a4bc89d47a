"""`POST /v1/messages/count_tokens`: exact where a deployment can count, else an estimate; nothing is generated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.dialects.messages.upstream.anthropic_server import POLICY
from tests.gateway.quota_policy import quota_policy
from tests.gateway.scripted import Wire
from tests.gateway.stack import Reply, Stack, running

PATH = "/v1/messages/count_tokens"
QUESTION = [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}]
TOOL = {"name": "get", "input_schema": {"type": "object"}}


async def count(stack: Stack, **fields: Any) -> Reply:
    """Count a small conversation."""
    headers = fields.pop("headers", None)
    return await stack.call({"model": "auto", "messages": QUESTION, **fields}, path=PATH, headers=headers)


async def no_such_path(wire: Wire) -> None:
    await wire.answer(b'{"error":"not found"}', 404)


async def test_a_deployment_counts(tmp_path: Path) -> None:
    async def tokens(wire: Wire) -> None:
        await wire.answer(b'{"count":17,"tokens":[1]}')

    async with running(tmp_path) as stack:
        stack.small.scripts = [tokens]
        reply = await count(stack, tools=[TOOL], system="s")
        assert reply.json == {"input_tokens": 17}
        assert reply.headers["request-id"] == reply.headers["x-request-id"]
        [received] = stack.small.received
        assert received.line.startswith("POST /tokenize ")
        assert received.json["model"] == "tiny"
        assert received.json["messages"][1] == {"role": "user", "content": [{"type": "text", "text": "hi"}]}
        assert received.json.keys() == {"model", "messages", "tools"}


async def test_without_such_a_deployment_it_is_an_estimate(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [no_such_path]
        stack.large.scripts = [no_such_path]
        short = (await count(stack)).json["input_tokens"]
        assert short > 0
        assert (await count(stack, system="word " * 1000)).json["input_tokens"] > short + 500
        assert (len(stack.small.received), len(stack.large.received)) == (1, 1)  # once each


async def test_anthropics_api_counts_by_its_own_endpoint(tmp_path: Path) -> None:
    async def tokens(wire: Wire) -> None:
        await wire.answer(b'{"input_tokens":23}')

    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.scripts = [tokens]
        reply = await count(stack, tools=[TOOL], thinking={"type": "enabled", "budget_tokens": 2000})
        assert reply.json == {"input_tokens": 23}
        [received] = stack.small.received
        assert received.line.startswith("POST /v1/messages/count_tokens ")
        assert received.json == {
            "model": "claude",
            "messages": QUESTION,
            "tools": [TOOL],
            "thinking": {"type": "enabled", "budget_tokens": 2000},
        }


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"model": "auto"}, 400, "invalid_request_error"),
        ({"model": "nobody", "messages": QUESTION}, 404, "not_found_error"),
        ({"model": "auto", "messages": QUESTION, "api_base": "x"}, 400, "invalid_request_error"),
        (b"{", 400, "invalid_request_error"),
        (b"[]", 400, "invalid_request_error"),
    ],
)
async def test_refusals_have_the_envelope_of_the_messages_api(
    tmp_path: Path, body: Any, status: int, kind: str
) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(body, path=PATH)
        assert reply.status == status
        document = json.loads(reply.body)
        assert (document["type"], document["error"]["type"]) == ("error", kind)
        assert document["request_id"] == reply.headers["x-request-id"]
        assert (await stack.call(None, path=PATH, method="GET")).json["error"]["type"] == "invalid_request_error"


async def test_a_key_is_needed_where_the_policy_has_keys(tmp_path: Path) -> None:
    async with running(tmp_path, policy=quota_policy(tmp_path, {"acme": "{requests_per_min: 9}"})) as stack:
        assert (await count(stack)).json["error"]["type"] == "authentication_error"
        stack.small.scripts = [no_such_path]
        stack.large.scripts = [no_such_path]
        assert (await count(stack, headers={"x-api-key": "sk-acme"})).status == 200
