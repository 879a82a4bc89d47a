"""Deployments that speak Responses, through the whole gateway: chat and Responses clients are served by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.dialects.responses.scripts import create, events_of, replying, sse, types_of
from tests.gateway.scripted import Script, Wire
from tests.gateway.stack import chat, running

POLICY = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny, dialect: responses}}
  - {{id: large, url: "unix:{folder}/large.sock", model: big}}
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [small, large]}}
"""
REASONING = {
    "id": "rs_up",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "sum"}],
    "encrypted_content": "gAAA",
}
SEARCH = {"id": "ws_up", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}
MESSAGE = {
    "id": "msg_up",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "hello", "annotations": []}],
}
CALL = {
    "id": "fc_up",
    "type": "function_call",
    "call_id": "call_1",
    "name": "find",
    "arguments": '{"q":1}',
    "status": "completed",
}
USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 2},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 10,
}


def response(output: list[Any], status: str = "completed", **members: Any) -> dict[str, Any]:
    """A whole response of an upstream."""
    return {
        "id": "resp_up",
        "object": "response",
        "created_at": 1.5,
        "model": "up",
        "status": status,
        "output": output,
        "usage": USAGE,
        **members,
    }


EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": response([], "in_progress")},
    {"type": "response.in_progress", "response": response([], "in_progress")},
    {"type": "response.output_item.added", "output_index": 0, "item": {"id": "rs_up", "type": "reasoning"}},
    {"type": "response.reasoning_summary_part.added", "item_id": "rs_up", "output_index": 0, "summary_index": 0},
    {"type": "response.reasoning_summary_text.delta", "item_id": "rs_up", "output_index": 0, "delta": "sum"},
    {"type": "response.reasoning_summary_text.done", "item_id": "rs_up", "output_index": 0, "text": "sum"},
    {"type": "response.output_item.done", "output_index": 0, "item": REASONING},
    {"type": "response.output_item.added", "output_index": 1, "item": SEARCH},
    {"type": "response.output_item.done", "output_index": 1, "item": SEARCH},
    {"type": "response.output_item.added", "output_index": 2, "item": {**MESSAGE, "content": []}},
    {"type": "response.output_text.delta", "output_index": 2, "content_index": 0, "item_id": "msg_up", "delta": "hel"},
    {"type": "response.output_text.delta", "output_index": 2, "content_index": 0, "item_id": "msg_up", "delta": "lo"},
    {
        "type": "response.output_text.annotation.added",
        "output_index": 2,
        "item_id": "msg_up",
        "annotation": {"type": "url_citation", "url": "https://a", "title": "A", "start_index": 0, "end_index": 5},
    },
    {"type": "response.output_item.done", "output_index": 2, "item": MESSAGE},
    {"type": "response.output_item.added", "output_index": 3, "item": {**CALL, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 3, "item_id": "fc_up", "delta": '{"q":'},
    {"type": "response.function_call_arguments.done", "output_index": 3, "item_id": "fc_up", "arguments": '{"q":1}'},
    {"type": "response.output_item.done", "output_index": 3, "item": CALL},
    {"type": "response.completed", "response": response([REASONING, SEARCH, MESSAGE, CALL])},
]


def streaming(events: list[dict[str, Any]]) -> Script:
    """A script that sends a stream of a response."""

    async def run(wire: Wire) -> None:
        await wire.start_stream()
        data = sse(events)
        await wire.send(b"%x\r\n%b\r\n" % (len(data), data))
        await wire.end()

    return run


def chunks_of(body: bytes) -> list[Any]:
    """The events of a chat completion; the last one is the end mark."""
    parts = [part.removeprefix("data: ") for part in body.decode().split("\n\n") if part]
    assert parts[-1] == "[DONE]"
    return [json.loads(part) for part in parts[:-1]]


async def test_a_chat_client_gets_a_chat_completion(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.scripts = [replying(response([REASONING, MESSAGE, CALL]))]
        reply = await stack.call(chat(max_tokens=9, temperature=0.5))
        request = stack.small.received[0]
    assert request.line.startswith("POST /v1/responses ")
    assert request.json == {
        "model": "tiny",
        "input": [{"role": "user", "content": "hi"}],
        "store": False,
        "max_output_tokens": 9,
        "temperature": 0.5,
    }
    assert reply.status == 200, reply.body
    choice = reply.json["choices"][0]
    assert choice["message"]["content"] == "hello"
    assert choice["message"]["reasoning_content"] == "sum"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "find", "arguments": '{"q":1}'}
    assert choice["finish_reason"] == "tool_calls"
    assert reply.json["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert reply.json["usage"]["completion_tokens"] == 3


async def test_a_chat_client_gets_a_stream_of_a_chat_completion(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.scripts = [streaming(EVENTS)]
        reply = await stack.call(chat(stream=True, stream_options={"include_usage": True}))
    chunks = chunks_of(reply.body)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "hello"
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "sum"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert "".join(call["function"]["arguments"] for call in calls) == '{"q":1}'
    assert calls[0]["id"] == "call_1"
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["usage"]["total_tokens"] == 10


async def test_a_chat_conversation_becomes_input_items(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
    body = chat(
        messages=[
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": "Looking.",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
        ],
        tools=[tool],
        tool_choice={"type": "function", "function": {"name": "find"}},
        reasoning_effort="low",
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {}}},
        verbosity="low",
    )
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.scripts = [replying(response([MESSAGE]))]
        reply = await stack.call(body)
        assert reply.status == 200, reply.body
        sent = stack.small.received[0].json
    assert sent["instructions"] == "Be short."
    assert sent["input"] == [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
    ]
    assert sent["tools"] == [{"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": False}]
    assert sent["tool_choice"] == {"type": "function", "name": "find"}
    assert sent["reasoning"] == {"effort": "low"}
    assert sent["text"] == {"verbosity": "low", "format": {"type": "json_schema", "name": "a", "schema": {}}}


@pytest.mark.parametrize("fields", [{"n": 2}, {"stop": "x"}, {"logit_bias": {"1": 1}}])
async def test_what_responses_cannot_express_is_refused_by_name(tmp_path: Path, fields: dict[str, Any]) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        reply = await stack.call(chat("tiny", **fields))
        assert stack.small.received == []
        served = await stack.call(chat(**fields))  # by the deployment of chat completions
    assert (reply.status, reply.error["param"]) == (400, next(iter(fields)))
    assert (served.status, served.headers["x-penstock-deployment"]) == (200, "large")


async def test_a_responses_client_gets_every_item_of_a_responses_deployment(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.scripts = [streaming(EVENTS), replying(response([REASONING, SEARCH, MESSAGE, CALL]))]
        fields: dict[str, Any] = {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}
        stream = await create(stack, stream=True, **fields)
        plain = await create(stack, **fields)
        sent = stack.small.received[0].json
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert sent["reasoning"] == {"summary": "auto"}
    assert types_of(stream.body) == [
        *("created", "in_progress", "output_item.added", "reasoning_summary_part.added"),
        *("reasoning_summary_text.delta", "reasoning_summary_text.done", "reasoning_summary_part.done"),
        *("output_item.done", "output_item.added", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.annotation.added", "output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done", "completed"),
    ]
    for output in (events_of(stream.body)[-1]["response"]["output"], plain.json["output"]):
        assert output[0]["id"] == "rs_up"
        assert output[0]["encrypted_content"] == "gAAA"
        assert output[1] == SEARCH
        assert output[2]["content"][0]["text"] == "hello"
        assert (output[3]["call_id"], output[3]["arguments"]) == ("call_1", '{"q":1}')


async def test_items_go_back_to_a_responses_deployment_in_their_places(tmp_path: Path) -> None:
    history = [
        {"role": "user", "content": "hi"},
        REASONING,
        SEARCH,
        {**MESSAGE, "id": "msg_x"},
        CALL,
        {"type": "function_call_output", "call_id": "call_1", "output": "found"},
        {"type": "local_shell_call_output", "id": "lsh_1", "output": "x"},
    ]
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.scripts = [replying(response([MESSAGE]))]
        reply = await create(stack, input=history)
        assert reply.status == 200, reply.body
        sent = stack.small.received[0].json["input"]
    assert sent == [
        {"role": "user", "content": "hi"},
        REASONING,
        SEARCH,
        {"role": "assistant", "content": "hello"},
        {"type": "function_call", "call_id": "call_1", "name": "find", "arguments": '{"q":1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "found"},
        {"type": "local_shell_call_output", "id": "lsh_1", "output": "x"},
    ]


async def test_a_chat_deployment_gets_the_conversation_without_items_that_only_tell(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await create(stack, input=[{"role": "user", "content": "hi"}, REASONING, SEARCH, MESSAGE])
        assert reply.status == 200
        assert stack.small.received[0].json["messages"] == [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
        ]
        needed = [{"role": "user", "content": "hi"}, {"type": "local_shell_call_output", "id": "l", "output": "x"}]
        refused = await create(stack, input=needed)
    assert (refused.status, refused.error["param"]) == (400, "input[1].type")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("reason", "finish"), [("max_output_tokens", "length"), ("content_filter", "content_filter")])
async def test_an_incomplete_response_has_its_finish_reason(
    tmp_path: Path, stream: bool, reason: str, finish: str
) -> None:
    cut = response([MESSAGE], "incomplete", incomplete_details={"reason": reason})
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.scripts = [
            streaming([EVENTS[0], {"type": "response.incomplete", "response": cut}]) if stream else replying(cut)
        ]
        reply = await stack.call(chat(stream=stream))
    last = chunks_of(reply.body)[-2] if stream else reply.json
    assert last["choices"][0]["finish_reason"] == finish


@pytest.mark.parametrize(
    "script",
    [
        replying(response([], "failed", error={"code": "server_error", "message": "x"})),
        replying({"choices": []}),
        replying(response([], "queued")),
        replying(response([7])),
    ],
)
async def test_a_failed_response_goes_to_the_next_deployment(tmp_path: Path, script: Script) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.scripts = [script]
        reply = await stack.call(chat())
        if reply.status == 200:
            assert len(stack.large.received) == 1
    assert reply.status in (200, 502)


async def test_a_stream_that_fails_before_its_text_goes_to_the_next_deployment(tmp_path: Path) -> None:
    failed = response([], "failed", error={"code": "server_error", "message": "x"})
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.scripts = [streaming([EVENTS[0], {"type": "response.failed", "response": failed}])]
        reply = await stack.call(chat(stream=True))
        assert len(stack.large.received) == 1
    assert reply.status == 200


async def test_an_upstreams_refusal_reaches_both_kinds_of_clients(tmp_path: Path) -> None:
    error = {"error": {"message": "bad", "type": "invalid_request_error", "param": "input[0].content", "code": None}}
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.scripts = [replying(error, 400), replying(error, 400)]
        replies = [await stack.call(chat()), await create(stack)]
    assert [(reply.status, reply.error["param"]) for reply in replies] == [(400, "input[0].content")] * 2


async def test_a_messages_client_is_served_by_a_responses_deployment(tmp_path: Path) -> None:
    body = {"model": "auto", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.scripts = [replying(response([MESSAGE]))]
        reply = await stack.call(body, path="/v1/messages", headers={"anthropic-version": "2023-06-01"})
        assert stack.small.received[0].json["max_output_tokens"] == 9
    assert reply.status == 200, reply.body
    assert reply.json["content"] == [{"type": "text", "text": "hello"}]


async def test_a_responses_client_is_served_by_an_anthropic_deployment(tmp_path: Path) -> None:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }
    policy = POLICY.replace("dialect: responses", "dialect: anthropic").format(folder=tmp_path)
    async with running(tmp_path, policy=policy) as stack:
        stack.small.scripts = [replying(message)]
        reply = await create(stack, instructions="Be short.", max_output_tokens=9)
        sent = stack.small.received[0]
    assert sent.line.startswith("POST /v1/messages ")
    assert (sent.json["system"], sent.json["max_tokens"]) == ("Be short.", 9)
    assert reply.json["output"][0]["content"][0]["text"] == "hello"
    assert reply.json["usage"]["output_tokens"] == 3
