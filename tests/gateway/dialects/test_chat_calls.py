"""Calls in OpenAI's older spelling: every client gets one call, plain and streamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.dialects.chat_calls import in_tool_calls
from tests.gateway.dialects.messages import client
from tests.gateway.dialects.responses.scripts import answering, create, delta, events_of, streaming
from tests.gateway.stack import running

OLDER = {"content": None, "function_call": {"name": "get", "arguments": '{"city":"Lyon"}'}}
STREAM = [
    delta(role="assistant", content=None, function_call={"name": "get", "arguments": ""}),
    delta(function_call={"arguments": '{"city":'}),
    delta(function_call={"arguments": '"Lyon"}'}),
    delta("function_call"),
]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_messages_client_gets_one_block(tmp_path: Path, is_stream: bool) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [streaming(*STREAM) if is_stream else answering(OLDER, "function_call")]
        reply = await client.post(stack, client.message(stream=is_stream))
        found = client.accumulated(client.events_of(reply.body)) if is_stream else reply.json
    assert found["stop_reason"] == "tool_use"
    (block,) = found["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "get", {"city": "Lyon"})
    assert block["id"]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_responses_client_gets_one_item(tmp_path: Path, is_stream: bool) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [streaming(*STREAM) if is_stream else answering(OLDER, "function_call")]
        reply = await create(stack, stream=is_stream)
        found: dict[str, Any] = events_of(reply.body)[-1]["response"] if is_stream else reply.json
    (item,) = found["output"]
    assert (found["status"], item["type"], item["name"]) == ("completed", "function_call", "get")
    assert json.loads(item["arguments"]) == {"city": "Lyon"}
    assert item["call_id"]


@pytest.mark.parametrize(
    "message",
    [
        {"content": "hi"},
        {**OLDER, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "get", "arguments": "{}"}}]},
        {"content": 'a "function_call"'},
        {"function_call": None},
    ],
)
def test_other_answers_stay_as_they_are(message: dict[str, Any]) -> None:
    completion = {"choices": [{"message": message}]}
    assert json.loads(in_tool_calls(json.dumps(completion).encode())) == completion


@pytest.mark.parametrize("body", [b'"function_call"', b'{"function_call"', b'{"choices":[7],"function_call":1}'])
def test_what_is_no_completion_stays_what_it_is(body: bytes) -> None:
    assert in_tool_calls(body) == body
