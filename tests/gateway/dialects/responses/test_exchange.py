"""`POST /v1/responses` through the whole gateway, over real sockets."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.dialects.responses.scripts import (
    PATH,
    USAGE,
    answering,
    call,
    create,
    delta,
    events_of,
    replying,
    requested,
    streaming,
    types_of,
)
from tests.gateway.scripted import Wire, chunk
from tests.gateway.stack import Reply, encode, running

CACHED = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny}}
  - {{id: large, url: "unix:{folder}/large.sock", model: big}}
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [small, large]}}
    cache: {{mode: exact}}
"""


async def test_a_plain_response_has_the_text_and_the_usage(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await create(stack, instructions="Be short.", metadata={"a": "b"}, max_output_tokens=9)
        assert reply.status == 200, reply.body
        sent = stack.small.received[0].json
    response = reply.json
    assert response["object"] == "response"
    assert response["status"] == "completed"
    assert response["output"][0]["content"] == [
        {"type": "output_text", "annotations": [], "logprobs": [], "text": "hello"}
    ]
    assert response["usage"]["input_tokens"] == 7
    assert response["usage"]["output_tokens"] == 3
    assert (response["instructions"], response["metadata"], response["store"]) == ("Be short.", {"a": "b"}, False)
    assert sent == {
        "model": "tiny",
        "max_completion_tokens": 9,
        "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "hi"}],
    }


async def test_a_stream_has_every_event_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await create(stack, stream=True)
        assert stack.small.received[0].json["stream_options"] == {"include_usage": True}
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert types_of(reply.body) == [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    last = events_of(reply.body)[-1]["response"]
    assert last["output"][0]["content"][0]["text"] == "hello"
    assert last["usage"]["total_tokens"] == 10
    assert last["id"] == events_of(reply.body)[0]["response"]["id"]


async def test_a_stream_of_reasoning_text_and_calls_has_an_item_for_each(tmp_path: Path) -> None:
    script = streaming(
        delta(role="assistant", content=""),
        delta(reasoning_content="hm"),
        delta(content="I look."),
        delta(tool_calls=[call(0, id="call_a", name="find")]),
        delta(tool_calls=[call(0, arguments='{"q":')]),
        delta(tool_calls=[call(0, arguments="1}")]),
        delta(tool_calls=[call(1, id="call_b", name="read", arguments="{}")]),
        delta("tool_calls"),
        delta(usage=USAGE),
    )
    async with running(tmp_path) as stack:
        stack.small.scripts = [script]
        reply = await create(stack, stream=True)
    assert types_of(reply.body) == [
        *("created", "in_progress"),
        *("output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done"),
        *("content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.done"),
        *("content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        "completed",
    ]
    events = events_of(reply.body)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call", "function_call"]
    assert (done[2]["call_id"], done[2]["name"], done[2]["arguments"]) == ("call_a", "find", '{"q":1}')
    assert events[-1]["response"]["usage"]["input_tokens_details"]["cached_tokens"] == 3


async def test_calls_whose_pieces_alternate_are_whole(tmp_path: Path) -> None:
    script = streaming(
        delta(tool_calls=[call(0, id="call_a", name="find", arguments='{"q":')]),
        delta(tool_calls=[call(1, id="call_b", name="read", arguments='{"p":')]),
        delta(tool_calls=[call(0, arguments="1}"), call(1, arguments="2}")]),
        delta("tool_calls"),
    )
    async with running(tmp_path) as stack:
        stack.small.scripts = [script]
        reply = await create(stack, stream=True)
    output = events_of(reply.body)[-1]["response"]["output"]
    assert [item["arguments"] for item in output] == ['{"q":1}', '{"p":2}']


async def test_a_plain_response_with_calls_has_an_item_for_each(tmp_path: Path) -> None:
    message = {
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "call_a", "type": "function", "function": {"name": "find", "arguments": "{}"}},
            {"id": "call_b", "type": "custom", "custom": {"name": "patch", "input": "x"}},
        ],
    }
    async with running(tmp_path) as stack:
        stack.small.scripts = [answering(message, "tool_calls", usage=USAGE)]
        reply = await create(stack)
    output = reply.json["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call", "custom_tool_call"]
    assert output[0]["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert (output[2]["call_id"], output[2]["input"]) == ("call_b", "x")


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_cut_short_is_incomplete(
    tmp_path: Path, finish: str, reason: str, stream: bool
) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [
            streaming(delta(content="he"), delta(finish)) if stream else answering({"content": "he"}, finish)
        ]
        reply = await create(stack, stream=stream)
    response = events_of(reply.body)[-1]["response"] if stream else reply.json
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": reason}
    assert response["output"][0]["status"] == "incomplete"
    if stream:
        assert types_of(reply.body)[-1] == "incomplete"


async def test_a_refusal_is_a_part_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [
            answering({"content": None, "refusal": "No."}),
            streaming(delta(refusal="N"), delta(refusal="o."), delta("stop")),
        ]
        plain = await create(stack)
        stream = await create(stack, stream=True)
    assert plain.json["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]
    assert types_of(stream.body)[3:7] == ["content_part.added", "refusal.delta", "refusal.delta", "refusal.done"]


async def test_a_stream_that_breaks_ends_with_an_error_and_a_failed_response(tmp_path: Path) -> None:
    async def breaks(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hel"))
        wire.abort()

    async with running(tmp_path) as stack:
        stack.small.scripts = [breaks]
        reply = await create(stack, stream=True)
    events = events_of(reply.body)
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2]["code"] == "upstream_error"
    assert events[-1]["response"]["status"] == "failed"
    assert events[-1]["response"]["error"]["code"] == "server_error"


async def test_an_upstreams_error_in_the_stream_fails_the_response(tmp_path: Path) -> None:
    error = {"error": {"message": "Slow down.", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}
    async with running(tmp_path) as stack:
        stack.small.scripts = [streaming(chunk("hel"), json.dumps(error).encode())]
        reply = await create(stack, stream=True)
    last = events_of(reply.body)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"] == {"code": "rate_limit_exceeded", "message": "Slow down."}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 7}, "input"),
        ({"input": [7]}, "input[0]"),
        ({"input": [{"role": "owner", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": ["x"]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        (
            {
                "input": [
                    {"role": "user", "content": "x"},
                    {
                        "role": "user",
                        "content": [
                            {"type": "input_text", "text": "x"},
                            {"type": "input_image", "image_url": "file:///etc/passwd", "detail": "auto"},
                        ],
                    },
                ]
            },
            "input[1].content[1].image_url",
        ),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        ({"input": [{"content": "x"}]}, "input[0].type"),
        ({"instructions": 7}, "instructions"),
        ({"temperature": 9}, "temperature"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"max_output_tokens": "9"}, "max_output_tokens"),
        ({"text": 7}, "text"),
        ({"text": {"format": 7}}, "text.format"),
        ({"tools": 7}, "tools"),
        ({"tools": [7]}, "tools[0]"),
        ({"tools": [{"name": "f"}]}, "tools[0].type"),
        ({"tool_choice": {"name": "f"}}, "tool_choice.type"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].id"),
        ({"api_base": "http://x"}, "api_base"),
        ({"chat_template": "x"}, "chat_template"),
        ({"stream": "yes"}, "stream"),
        ({"model": 7}, "model"),
    ],
)
async def test_a_wrong_field_is_named_as_the_client_wrote_it(
    tmp_path: Path, fields: dict[str, Any], param: str
) -> None:
    async with running(tmp_path) as stack:
        reply = await create(stack, **fields)
        assert stack.small.received == []
    assert reply.status == 400, reply.body
    assert reply.error["param"] == param
    assert param in reply.error["message"]
    assert reply.error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"model":',
        b'\xef\xbb\xbf{"model":"auto","input":"x"}',
        b'{"model":"auto","model":"auto","input":"x"}',
        b'{"model":"auto","input":"\\ud800"}',
        b'{"model":"auto","input":"x","top_p":1e999}',
        b'{"model":"auto","input":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    ],
)
async def test_bad_json_is_refused_in_the_envelope(tmp_path: Path, body: bytes) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(body, path=PATH)
    assert reply.status == 400
    assert reply.error["code"] == "invalid_json"


async def test_other_media_types_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(b"x", path=PATH, headers={"content-type": "text/plain"})
    assert (reply.status, reply.error["code"]) == (415, "unsupported_media_type")


async def test_an_upstreams_refusal_names_the_clients_field(tmp_path: Path) -> None:
    error = {"message": "messages[1].content is bad", "type": "invalid_request_error", "param": "messages[1].content"}
    async with running(tmp_path) as stack:
        stack.small.scripts = [replying({"error": {**error, "code": None}}, 400)]
        reply = await create(stack, instructions="x", input=[{"role": "user", "content": "y"}])
    assert reply.status == 400
    assert reply.error["param"] == "input[0].content"
    assert reply.error["message"] == "input[0].content is bad"


async def test_null_and_empty_members_count_as_absent(tmp_path: Path) -> None:
    replayed = {
        "tools": [],
        "text": {"format": None, "verbosity": None},
        "reasoning": {"effort": None, "summary": None},
        "metadata": {},
        "previous_response_id": None,
        "conversation": None,
        "prompt": None,
        "include": None,
        "temperature": None,
        "tool_choice": None,
        "input": [
            {"type": "message", "role": "user", "content": "hi"},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": None,
                "content": [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": None}],
            },
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": None},
            {"type": "message", "role": "user", "content": "again"},
        ],
    }
    async with running(tmp_path) as stack:
        reply = await create(stack, **replayed)
        assert reply.status == 200, reply.body
        assert stack.small.received[0].json == {
            "model": "tiny",
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "hello"},
                {"role": "user", "content": "again"},
            ],
        }


async def test_unknown_fields_reach_the_upstream(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await create(stack, provider={"order": ["a"]}, seed=7, include=["x"], truncation="auto", metadata={"a": "b"})
        sent = stack.small.received[0].json
    assert (sent["provider"], sent["seed"]) == ({"order": ["a"]}, 7)
    assert not {"include", "truncation", "metadata", "store"} & sent.keys()


async def test_a_client_that_leaves_cancels_the_upstream(tmp_path: Path) -> None:
    async def talks_on(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hel"))
        await wire.is_gone.wait()

    async with running(tmp_path) as stack:
        stack.small.scripts = [talks_on]
        reader, writer = await stack.connect()
        writer.write(encode(requested(stream=True), path=PATH))
        await reader.readuntil(b"output_text.delta")
        writer.close()
        await asyncio.wait_for(stack.small.gone.wait(), 5)
        await stack.until_idle()


async def test_a_retry_at_another_deployment_is_one_response(tmp_path: Path) -> None:
    async def fails(wire: Wire) -> None:
        await wire.answer(b'{"error":{"message":"x"}}', 503)

    async with running(tmp_path) as stack:
        stack.small.scripts = [fails]
        reply = await create(stack, stream=True)
        assert len(stack.large.received) == 1
    assert types_of(reply.body)[-1] == "completed"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cached_answer_is_a_response_with_ids_of_its_own(tmp_path: Path, stream: bool) -> None:
    async with running(tmp_path, policy=CACHED.format(folder=tmp_path)) as stack:
        first = await create(stack, temperature=0)
        again = await create(stack, temperature=0, stream=stream)
        assert len(stack.small.received) == 1
    assert again.headers["x-penstock-cache"] == "hit-exact"
    response = events_of(again.body)[-1]["response"] if stream else again.json
    assert response["id"] != first.json["id"]
    assert response["output"][0]["content"] == first.json["output"][0]["content"]
    assert response["usage"] == first.json["usage"]


async def test_a_chat_client_and_a_responses_client_share_a_cached_answer(tmp_path: Path) -> None:
    async with running(tmp_path, policy=CACHED.format(folder=tmp_path)) as stack:
        await stack.call({"model": "auto", "messages": [{"role": "user", "content": "hi"}], "temperature": 0})
        reply = await create(stack, temperature=0)
    assert reply.headers["x-penstock-cache"] == "hit-exact"
    assert reply.json["output"][0]["content"][0]["text"] == "hello"


async def test_followers_of_a_stream_get_events_of_their_own(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def slow(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hel"))
        await go_on.wait()
        for event in (chunk("lo"), chunk(finish="stop"), chunk(usage=(7, 3)), b"[DONE]"):
            await wire.event(event)
        await wire.end()

    async with running(tmp_path, policy=CACHED.format(folder=tmp_path)) as stack:
        stack.small.scripts = [slow]
        first = asyncio.create_task(create(stack, temperature=0, stream=True))
        await asyncio.wait_for(stack.small.got_request.wait(), 5)
        reader, writer = await stack.connect()
        writer.write(encode(requested(temperature=0, stream=True), path=PATH))
        begun = await asyncio.wait_for(reader.readuntil(b"output_text.delta"), 5)
        go_on.set()
        second = Reply(begun + await asyncio.wait_for(reader.read(), 5))
        writer.close()
        replies = [await first, second]
        assert len(stack.small.received) == 1
    last = [events_of(reply.body)[-1]["response"] for reply in replies]
    assert last[0]["id"] != last[1]["id"]
    assert [response["output"][0]["content"][0]["text"] for response in last] == ["hello", "hello"]


async def test_a_long_conversation_is_served(tmp_path: Path) -> None:
    items = [{"role": "user", "content": "x" * 100_000}, {"role": "assistant", "content": "y"}] * 5
    async with running(tmp_path) as stack:
        reply = await create(stack, input=[*items, {"role": "user", "content": "z"}])
        assert reply.status == 200
        assert len(stack.small.received[0].json["messages"]) == 11
