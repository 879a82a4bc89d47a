"""A deployment of Anthropic's API behind chat completions and behind the Messages API, over real sockets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.dialects.messages.client import accumulated, events_of, message, post
from tests.gateway.dialects.messages.upstream.anthropic_server import (
    CALL,
    POLICY,
    REASONED,
    REDACTED,
    SEARCHED,
    TEXT,
    USAGE,
    answering,
    message_with,
    stream_of,
)
from tests.gateway.scripted import Wire
from tests.gateway.stack import chat, running

AFTERWARDS = {"type": "text", "text": "The tide turns."}
CACHED = {"cache_control": {"type": "ephemeral"}}
RESULT_TURN = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]}


def policy(folder: Path, extra: str = "") -> str:
    return POLICY.format(folder=folder).replace("dialect: anthropic", "dialect: anthropic" + extra)


async def test_a_chat_client_is_served(tmp_path: Path) -> None:
    answer = message_with([REASONED, TEXT, CALL], stop_reason="tool_use")
    tool = {"type": "function", "function": {"name": "get", "parameters": {"type": "object"}}}
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [answering(answer), answering(answer)]
        body = chat(tools=[tool], tool_choice="required", stop="END", user="u", seed=1, max_tokens=9)
        reply = await stack.call(body)
        message_of_chat = reply.json["choices"][0]["message"]
        assert message_of_chat["content"] == "hello"
        assert message_of_chat["reasoning_content"] == "let me see"
        assert message_of_chat["tool_calls"][0]["function"] == {"name": "get", "arguments": '{"city":"Lyon"}'}
        assert reply.json["choices"][0]["finish_reason"] == "tool_calls"
        assert reply.json["usage"]["prompt_tokens"] == 9
        received = stack.small.received[0]
        assert received.line.startswith("POST /v1/messages ")
        assert received.headers["anthropic-version"] == "2023-06-01"
        assert received.json == {
            "model": "claude",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"name": "get", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "any"},
            "stop_sequences": ["END"],
            "metadata": {"user_id": "u"},
        }
        streamed = await stack.call({**body, "stream": True, "stream_options": {"include_usage": True}})
        assert streamed.body.endswith(b"data: [DONE]\n\n")
        assert b'"finish_reason":"tool_calls"' in streamed.body
        assert stack.lines()[-1]["prompt_tokens"] == 9


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    "blocks", [[REASONED, REDACTED, TEXT, CALL], SEARCHED, [TEXT, CALL, AFTERWARDS], [REASONED, TEXT, AFTERWARDS]]
)
async def test_a_messages_client_gets_the_message_as_it_is(
    tmp_path: Path, blocks: list[dict[str, Any]], is_stream: bool
) -> None:
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [answering(message_with(blocks, container={"id": "c"}))]
        reply = await post(stack, message(stream=is_stream, thinking={"type": "adaptive"}))
        found = accumulated(events_of(reply.body)) if is_stream else reply.json
        assert found["content"] == blocks
        assert found["usage"] == USAGE
        assert found["container"] == {"id": "c"}
        assert found["id"] == "msg_01"


async def test_a_request_reaches_the_api_as_it_was_sent(tmp_path: Path) -> None:
    search = {"type": "search_result", "source": "s", "title": "t", "content": [TEXT]}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}, **CACHED}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}
    content = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [TEXT, image, search], "is_error": True, **CACHED},
        {"type": "document", "source": pdf, "title": "T", "citations": {"enabled": True}},
        {"type": "document", "source": {"type": "file", "file_id": "f"}},
        {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
        {"type": "text", "text": "go on", **CACHED},
        {"type": "unheard_of", "value": [1]},
    ]
    sent = message(
        system=[{"type": "text", "text": "be brief", **CACHED}],
        messages=[
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [REASONED, REDACTED, TEXT, CALL]},
            {"role": "user", "content": content},
        ],
        tools=[
            {"name": "get", "description": "d", "input_schema": {"type": "object"}, **CACHED},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
        ],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        thinking={"type": "enabled", "budget_tokens": 2048},
        stop_sequences=["END"],
        metadata={"user_id": "u"},
        temperature=1.0,
        top_k=3,
        service_tier="auto",
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
        unheard_of={"a": 1},
    )
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [answering(message_with([TEXT]))]
        headers = {"anthropic-beta": "context-management-2025-06-27, other-2026-01-01"}
        assert (await post(stack, sent, headers=headers)).status == 200
        received = stack.small.received[0]
        assert received.json == {**sent, "model": "claude"}
        assert received.headers["anthropic-beta"] == "context-management-2025-06-27,other-2026-01-01"


@pytest.mark.parametrize(
    "turn",
    [
        [TEXT, CALL, AFTERWARDS],
        [{**TEXT, **CACHED}, AFTERWARDS, CALL],
        [REASONED, CALL, AFTERWARDS, {**CALL, "id": "toolu_2"}, TEXT],
    ],
)
async def test_a_turn_of_the_assistant_keeps_the_order_of_its_blocks(
    tmp_path: Path, turn: list[dict[str, Any]]
) -> None:
    conversation = [{"role": "user", "content": "q"}, {"role": "assistant", "content": turn}, RESULT_TURN]
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [answering(message_with([TEXT]))]
        assert (await post(stack, message(messages=conversation))).status == 200
        assert stack.small.received[0].json["messages"] == conversation


async def test_a_carried_call_has_the_id_that_its_result_has(tmp_path: Path) -> None:
    turn = [{**CALL, "id": "functions.get:0"}, {"type": "text", "text": ""}, AFTERWARDS]
    result = {"type": "tool_result", "tool_use_id": "functions.get:0", "content": "x"}
    conversation = [{"role": "assistant", "content": turn}, {"role": "user", "content": [result]}]
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [answering(message_with([TEXT]))]
        assert (await post(stack, message(messages=conversation))).status == 200
        sent, answered = (each["content"] for each in stack.small.received[0].json["messages"])
    assert sent == [{**CALL, "id": "functions_get_0"}, AFTERWARDS]
    assert answered[0]["tool_use_id"] == "functions_get_0"


async def test_a_server_of_chat_completions_gets_no_carried_blocks(tmp_path: Path) -> None:
    turn = [TEXT, CALL, AFTERWARDS]
    conversation = [{"role": "user", "content": "q"}, {"role": "assistant", "content": turn}, RESULT_TURN]
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        assert (await post(stack, message(model="either", messages=conversation))).status == 200
        sent = stack.large.received[0].json["messages"][1]
    assert sent.keys() == {"role", "content", "tool_calls"}
    assert sent["content"] == [TEXT, AFTERWARDS]


async def test_the_key_goes_as_x_api_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-ant-secret-of-the-gateway")
    async with running(tmp_path, policy=policy(tmp_path, ", auth: {bearer_env: CLAUDE_KEY}")) as stack:
        stack.small.scripts = [answering(message_with([TEXT]))]
        assert (await post(stack, headers={"x-api-key": "the-clients-own"})).status == 200
        headers = stack.small.received[0].headers
        assert headers["x-api-key"] == "sk-ant-secret-of-the-gateway"
        assert "authorization" not in headers


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_hit_is_the_message_again(tmp_path: Path, is_stream: bool) -> None:
    blocks = [REASONED, *SEARCHED]
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [answering(message_with(blocks))]
        body = message(model="cached", thinking={"type": "adaptive"})
        await post(stack, {**body, "stream": is_stream})
        plain, streamed = await post(stack, body), await post(stack, {**body, "stream": True})
        assert [reply.headers["x-penstock-cache"] for reply in (plain, streamed)] == ["hit-exact", "hit-exact"]
        assert plain.json["content"] == blocks
        assert accumulated(events_of(streamed.body))["content"] == blocks
        assert len(stack.small.received) == 1


async def test_history_of_a_chat_client_keeps_the_signature(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [answering(message_with([REASONED, TEXT, CALL])), answering(message_with([TEXT]))]
        body = chat()
        answer = (await stack.call(body)).json["choices"][0]["message"]
        output = {"role": "tool", "tool_call_id": "toolu_1", "content": "sunny"}
        assert (await stack.call({**body, "messages": [*body["messages"], answer, output]})).status == 200
        turns = stack.small.received[1].json["messages"]
        assert turns[1] == {"role": "assistant", "content": [REASONED, TEXT, CALL]}
        assert turns[2]["content"] == [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "x"}}]}]},
            "messages[0].content[0].type",
        ),
    ],
)
async def test_what_would_change_the_answer_is_refused_by_name(
    tmp_path: Path, fields: dict[str, Any], param: str
) -> None:
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        reply = await stack.call(chat(**fields))
        assert (reply.status, reply.error["param"]) == (400, param)
        assert stack.small.received == []


async def test_a_request_goes_where_it_can_be_expressed(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [answering(message_with(SEARCHED))]
        body = message(model="either", tools=[{"type": "web_search_20250305", "name": "web_search"}])
        reply = await post(stack, body)
        assert reply.headers["x-penstock-deployment"] == "small"
        assert reply.json["content"] == SEARCHED
        assert stack.large.received == []


@pytest.mark.parametrize("is_stream", [False, True])
async def test_its_errors_are_translated(tmp_path: Path, is_stream: bool) -> None:
    async def too_long(wire: Wire) -> None:
        error = {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}
        await wire.answer(json.dumps({"type": "error", "error": error}).encode(), 400)

    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [too_long, too_long]
        own = await post(stack, message(stream=is_stream))
        assert own.json["error"] == {
            "type": "invalid_request_error",
            "message": "prompt is too long: 9 tokens > 8 maximum",
        }
        reply = await stack.call(chat(stream=is_stream))
        assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")


async def test_an_error_inside_of_a_stream_is_the_last_event(tmp_path: Path) -> None:
    async def overloaded(wire: Wire) -> None:
        await wire.start_stream()
        start, _, begin, delta, *_ = stream_of(message_with([TEXT]))
        error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
        for data in (start, begin, delta, error):
            await wire.send(b"%x\r\n%b\r\n" % (len(data), data))
        await wire.end()

    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [overloaded]
        events = events_of((await post(stack, message(stream=True))).body)
        assert events[-1] == {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        assert stack.lines()[-1]["outcome"] == "upstream_failed"
