"""`POST /v1/messages` over real sockets, with scripted servers of chat completions behind it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.dialects.messages.client import PATH, accumulated, events_of, message, post
from tests.gateway.quota_policy import quota_policy
from tests.gateway.scripted import Wire, chunk, hang
from tests.gateway.stack import encode, policy_text, running

CACHED_POLICY = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny}}
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [small]}}
    cache: {{mode: exact, scope: shared}}
"""


def error_of(body: bytes) -> dict[str, Any]:
    """The inside of the envelope of this API, whose form is checked."""
    document = json.loads(body)
    assert document.keys() <= {"type", "error", "request_id"}
    assert document["type"] == "error"
    error: dict[str, Any] = document["error"]
    assert error.keys() == {"type", "message"}
    return error


async def test_a_plain_message(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await post(stack, headers={"anthropic-version": "2023-06-01"})
        assert reply.status == 200
        assert reply.headers["request-id"] == reply.headers["x-request-id"]
        assert reply.json["content"] == [{"type": "text", "text": "hello"}]
        assert reply.json["usage"]["input_tokens"] == 7
        assert stack.small.received[0].line.startswith("POST /v1/chat/completions ")
        [line] = stack.lines()
        assert (line["outcome"], line["prompt_tokens"]) == ("completed", 7)


async def test_a_streamed_message(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await post(stack, message(stream=True))
        assert reply.headers["content-type"].startswith("text/event-stream")
        found = accumulated(events_of(reply.body))
        assert found["content"] == [{"type": "text", "text": "hello"}]
        assert found["usage"]["output_tokens"] == 3
        assert b"[DONE]" not in reply.body


@pytest.mark.parametrize("is_stream", [False, True])
async def test_the_cache_serves_both_apis(tmp_path: Path, is_stream: bool) -> None:
    async with running(tmp_path, policy=CACHED_POLICY.format(folder=tmp_path)) as stack:
        assert (await post(stack, message(stream=is_stream))).headers["x-penstock-cache"] == "miss"
        plain, streamed = await post(stack), await post(stack, message(stream=True))
        for reply in (plain, streamed):
            assert reply.headers["x-penstock-cache"] == "hit-exact"
        assert plain.json["content"] == accumulated(events_of(streamed.body))["content"]
        chat = {"model": "auto", "messages": message()["messages"], "max_completion_tokens": 64}
        assert (await stack.call(chat)).json["choices"][0]["message"]["content"] == "hello"
        assert len(stack.small.received) == 1


async def test_a_client_that_leaves_ends_the_upstreams_work(tmp_path: Path) -> None:
    async def talk(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("one"))
        await wire.is_gone.wait()

    async with running(tmp_path) as stack:
        stack.small.scripts = [talk, hang]
        for body in (message(stream=True), message()):
            stack.small.got_request.clear()
            stack.small.gone.clear()
            reader, writer = await stack.connect()
            writer.write(encode(body, path=PATH))
            await asyncio.wait_for(stack.small.got_request.wait(), 5)
            if body.get("stream"):
                await asyncio.wait_for(reader.readuntil(b'"one"'), 5)
            writer.close()
            await asyncio.wait_for(stack.small.gone.wait(), 5)
        await stack.until_idle()
        assert [line["outcome"] for line in stack.lines()] == ["cancelled", "cancelled"]


async def test_a_stream_that_breaks_ends_with_an_error_event(tmp_path: Path) -> None:
    async def broken(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("one"))
        wire.abort()

    async with running(tmp_path) as stack:
        stack.small.scripts = [broken]
        events = events_of((await post(stack, message(model="solo", stream=True))).body)
        assert events[-1]["type"] == "error"
        assert events[-1]["error"]["type"] == "api_error"
        assert "small" in events[-1]["error"]["message"]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_errors_before_the_answer_have_the_envelope_of_this_api(tmp_path: Path, is_stream: bool) -> None:
    async def refuse(wire: Wire) -> None:
        await wire.answer(b'{"error":{"message":"too long","type":"x","param":null,"code":"y"}}', 400)

    async def fail(wire: Wire) -> None:
        await wire.answer(b"{}", 503, {"retry-after": "7"})

    async with running(tmp_path) as stack:
        stack.small.scripts = [refuse, fail]
        body = message(model="solo", stream=is_stream)
        refused, overloaded = await post(stack, body), await post(stack, body)
        assert (refused.status, error_of(refused.body)) == (
            400,
            {"type": "invalid_request_error", "message": "too long"},
        )
        assert refused.json["request_id"] == refused.headers["request-id"]
        assert (overloaded.status, error_of(overloaded.body)["type"]) == (503, "overloaded_error")
        assert overloaded.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("how", "status", "kind"),
    [
        ({"headers": {"content-type": "text/plain"}}, 415, "invalid_request_error"),
        ({"headers": {"content-encoding": "gzip"}}, 415, "invalid_request_error"),
        ({"method": "GET"}, 405, "invalid_request_error"),
        ({"method": "DELETE"}, 405, "invalid_request_error"),
        ({"body": b"{"}, 400, "invalid_request_error"),
        ({"body": message(model="nobody")}, 404, "not_found_error"),
        ({"body": message(messages=[])}, 400, "invalid_request_error"),
        ({"body": message(chat_template="x")}, 400, "invalid_request_error"),
    ],
)
async def test_refusals_have_the_envelope_of_this_api(
    tmp_path: Path, how: dict[str, Any], status: int, kind: str
) -> None:
    async with running(tmp_path) as stack:
        body = how.pop("body", message())
        reply = await post(stack, None if how.get("method") else body, **how)
        assert reply.status == status
        assert error_of(reply.body)["type"] == kind
        assert reply.json["request_id"] == reply.headers["x-request-id"]
        assert (await post(stack)).status == 200


async def test_a_body_that_is_too_large(tmp_path: Path) -> None:
    async with running(tmp_path, settings={"edge.body.max_bytes": 2000}) as stack:
        reply = await post(stack, message(messages=[{"role": "user", "content": "x" * 4000}]))
        assert (reply.status, error_of(reply.body)["type"]) == (413, "request_too_large")


async def test_a_key_comes_in_either_header(tmp_path: Path) -> None:
    policy = quota_policy(tmp_path, {"acme": "{requests_per_min: 60}"})
    async with running(tmp_path, policy=policy) as stack:
        assert error_of((await post(stack)).body)["type"] == "authentication_error"
        for headers in ({"x-api-key": "sk-acme"}, {"authorization": "Bearer sk-acme"}):
            assert (await post(stack, headers=headers)).status == 200
        for key in ("sk-acmE", "", "sk-acme sk-acme", "x" * 10_000, "' OR 1=1 --"):
            reply = await post(stack, headers={"x-api-key": key})
            assert (reply.status, error_of(reply.body)["type"]) == (401, "authentication_error")
        assert "x-api-key" not in stack.small.received[0].headers


async def test_limits_have_the_names_of_this_api(tmp_path: Path) -> None:
    policy = quota_policy(tmp_path, {"acme": "{requests_per_min: 1}"})
    async with running(tmp_path, policy=policy) as stack:
        reply, refused = [await post(stack, headers={"x-api-key": "sk-acme"}) for _ in range(2)]
        assert reply.headers["anthropic-ratelimit-requests-limit"] == "1"
        assert reply.headers["anthropic-ratelimit-requests-remaining"] == "0"
        assert reply.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
        assert not any(name.startswith("x-ratelimit-") for name in reply.headers)
        assert (refused.status, error_of(refused.body)["type"]) == (429, "rate_limit_error")
        assert int(refused.headers["retry-after"]) >= 1


async def test_reasoning_is_shown_to_whom_wants_it(tmp_path: Path) -> None:
    async def think(wire: Wire) -> None:
        answer = {"role": "assistant", "content": "a", "reasoning_content": "hm"}
        choice = {"index": 0, "message": answer, "finish_reason": "stop"}
        await wire.answer(json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode())

    async with running(tmp_path) as stack:
        stack.small.scripts = [think, think, think]
        kinds = []
        for setting in ({"type": "adaptive"}, {"type": "adaptive", "display": "omitted"}, {"type": "disabled"}):
            reply = await post(stack, message(thinking=setting))
            kinds.append([block["type"] for block in reply.json["content"]])
        assert kinds == [["thinking", "text"], ["text"], ["text"]]


async def test_the_stages_of_a_request_on_demand(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        headers = {"x-penstock-timing": "full"}
        assert (await post(stack, headers=headers)).json["penstock"]["timing"]["gateway"]
        events = events_of((await post(stack, message(stream=True), headers=headers)).body)
        assert events[-2]["penstock"]["timing"]["gateway"]


async def test_a_trimmed_request_is_served(tmp_path: Path) -> None:
    policy = policy_text(tmp_path).replace("id: main\n", "id: main\n    trim: {strategies: [minify, dedupe]}\n", 1)
    blocks = [{"type": "text", "text": "a   b\n\n\n\n\nc " * 40, "cache_control": {"type": "ephemeral"}}]
    async with running(tmp_path, policy=policy) as stack:
        turns = [
            {"role": "user", "content": blocks},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": blocks},
        ]
        assert (await post(stack, message(messages=turns))).status == 200
        assert "cache_control" not in stack.small.received[0].body.decode()


async def test_only_a_message_with_stop_sequences_wants_to_know_which_one_matched(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await post(stack, message(stop_sequences=["END"]))
        await post(stack)
        await stack.call({"model": "auto", "messages": [{"role": "user", "content": "hi"}], "stop": ["END"]})
        wants = ["x-penstock-stop-reason" in received.headers for received in stack.small.received]
    assert wants == [True, False, False]


async def test_a_chat_client_gets_no_answer_made_for_a_message_with_stop_sequences(tmp_path: Path) -> None:
    async def stopped(wire: Wire) -> None:
        choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
        if "x-penstock-stop-reason" in wire.request.headers:
            choice["stop_reason"] = "END"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        document = {"id": "c", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]}
        await wire.answer(json.dumps({**document, "usage": usage}).encode())

    async with running(tmp_path, policy=CACHED_POLICY.format(folder=tmp_path)) as stack:
        stack.small.otherwise = stopped
        body = message(stop_sequences=["END"])
        replies = [await post(stack, body) for _ in range(2)]
        same = {"model": "auto", "messages": body["messages"], "max_completion_tokens": 64, "stop": ["END"]}
        chat = await stack.call(same)
    assert [reply.headers["x-penstock-cache"] for reply in (*replies, chat)] == ["miss", "hit-exact", "miss"]
    assert [reply.json["stop_sequence"] for reply in replies] == ["END", "END"]
    assert "stop_reason" not in chat.json["choices"][0]
