"""Text completions through a whole gateway: passed on, streamed byte for byte, cached, shed and refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway.chat.operation import COMPLETIONS
from gateway.dialects.completions.dialect import COMPLETIONS_PATH, completions_dialect
from gateway.errors import InvalidRequest
from tests.gateway.scripted import Wire
from tests.gateway.stack import Reply, Stack, running

POLICY = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny, context_tokens: 64, limits: {{max_in_flight: 1}}}}
  - {{id: large, url: "unix:{folder}/large.sock", model: big, operations: [embeddings]}}
lanes:
  - {{id: interactive, max_queue: 0}}
routes:
  - id: auto
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [small, large]}}
    trim: {{strategies: [minify, dedupe], budget_tokens: 10}}
    cache: {{mode: exact_then_semantic, scope: tenant, ttl_s: 60}}
"""
USAGE = {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
USAGE_EVENT = (
    b'{"id":"cmpl-1","object":"text_completion","created":1,"model":"tiny","choices":[],'
    b'"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}}'
)


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "auto", "prompt": "Once upon", **fields}


def completion(*texts: str, **more: Any) -> bytes:
    choices = [
        {"index": place, "text": text, "logprobs": None, "finish_reason": "stop", **more}
        for place, text in enumerate(texts)
    ]
    answer = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny", "choices": choices}
    return json.dumps({**answer, "usage": USAGE}).encode()


def event(text: str, *, finish: str | None = None, logprobs: Any = None, index: int = 0) -> bytes:
    choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
    return json.dumps(
        {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny", "choices": [choice]},
        separators=(",", ":"),
    ).encode()


def answers(*texts: str) -> Callable[[Wire], Any]:
    async def script(wire: Wire) -> None:
        await wire.answer(completion(*texts))

    return script


async def stream(wire: Wire) -> None:
    await wire.start_stream()
    odds = {"tokens": [" a"], "token_logprobs": [-0.5], "top_logprobs": [{" a": -0.5}], "text_offset": [9]}
    await wire.event(event(" a", logprobs=odds))
    await wire.event(event(" time", logprobs={**odds, "tokens": [" time"], "text_offset": [11]}))
    await wire.event(event("", finish="length"))
    await wire.event(USAGE_EVENT)
    await wire.event(b"[DONE]")
    await wire.end()


async def call(stack: Stack, sent: Any, **how: Any) -> Reply:
    return await stack.call(sent, path=COMPLETIONS_PATH, **how)


def policy(folder: Path) -> str:
    return POLICY.format(folder=folder)


async def test_a_completion_goes_to_the_deployments_endpoint_with_every_field(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [answers(" a time")]
        sent = body(echo=True, suffix="!", max_tokens=5, x_own={"deep": [1.50]})
        reply = await call(stack, sent)

        assert reply.status == 200
        assert reply.body == completion(" a time")
        assert reply.headers["x-penstock-cache"] == "miss"
        assert stack.small.received[0].line.startswith("POST /v1/completions ")
        assert stack.small.received[0].json == {**sent, "model": "tiny"}
        line = stack.lines()[0]
        assert (line["outcome"], line["prompt_tokens"], line["completion_tokens"]) == ("completed", 2, 3)


async def test_a_stream_is_passed_on_byte_for_byte_and_replayed_from_the_cache(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [stream]
        first = await call(stack, body(stream=True, stream_options={"include_usage": True}))
        hit = await call(stack, body())

        odds = b'{"tokens":[" a"],"token_logprobs":[-0.5],"top_logprobs":[{" a":-0.5}],"text_offset":[9]}'
        assert first.body.startswith(b"data: " + event(" a").replace(b'"logprobs":null', b'"logprobs":' + odds))
        last = event("", finish="length") + b"\n\ndata: " + USAGE_EVENT
        assert first.body.endswith(last + b"\n\ndata: [DONE]\n\n")
        assert hit.headers["x-penstock-cache"] == "hit-exact"
        choice = hit.json["choices"][0]
        assert (hit.json["object"], choice["text"], choice["finish_reason"]) == ("text_completion", " a time", "length")
        assert choice["logprobs"]["tokens"] == [" a", " time"]
        assert choice["logprobs"]["text_offset"] == [9, 11]
        assert hit.json["usage"] == USAGE
        assert len(stack.small.received) == 1


async def test_a_stored_answer_serves_a_stream_in_the_events_of_completions(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [answers(" a", " b")]
        await call(stack, body(n=2))
        hit = await call(stack, body(n=2, stream=True))

        events = [json.loads(part.removeprefix(b"data: ")) for part in hit.body.split(b"\n\n")[:-2]]
        assert hit.headers["x-penstock-cache"] == "hit-exact"
        assert {found["object"] for found in events} == {"text_completion"}
        assert [(found["choices"][0]["index"], found["choices"][0]["text"]) for found in events] == [
            (0, " a"),
            (0, ""),
            (1, " b"),
            (1, ""),
        ]


async def test_a_completion_and_a_chat_never_share_an_answer(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [answers(" a")]
        fields = {"messages": [{"role": "user", "content": "Once upon"}]}
        await call(stack, body(**fields))
        reply = await stack.call({"model": "auto", "prompt": "Once upon", **fields})

        assert reply.headers["x-penstock-cache"] == "miss"


async def test_a_full_deployment_sheds_completions(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        release = asyncio.Event()

        async def slow(wire: Wire) -> None:
            await release.wait()
            await wire.answer(completion(" a"))

        stack.small.scripts = [slow]
        first = asyncio.create_task(call(stack, body()))
        await stack.small.got_request.wait()
        shed = await call(stack, body(prompt="another"))
        release.set()

        assert (shed.status, shed.headers["x-penstock-shed-reason"]) == (503, "queue_full")
        assert (await first).status == 200


async def test_an_answer_of_another_kind_is_an_upstream_error_that_names_what_was_expected(tmp_path: Path) -> None:
    async def nothing(wire: Wire) -> None:
        await wire.answer(b'{"object":"list","data":[]}')

    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [nothing]
        reply = await call(stack, body())

        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert "no text completion" in reply.error["message"]


async def test_a_model_without_the_operation_is_refused_with_those_that_have_it(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        reply = await call(stack, body(model="big"))

        assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "unsupported_operation", "model")
        assert reply.error["message"] == (
            "Model 'big' serves embeddings, not completions. For completions use auto, tiny and small."
        )
        assert stack.large.received == []


async def test_a_prompt_that_fits_nowhere_is_refused_by_its_place(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        long = " ".join(str(number) for number in range(2000))
        reply = await call(stack, body(prompt=["short", long]))

        assert (reply.status, reply.error["code"], reply.error["param"]) == (
            400,
            "context_length_exceeded",
            "prompt[1]",
        )


async def test_the_openai_library_reads_answers_and_streams(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy(tmp_path)) as stack:
        stack.small.scripts = [answers(" a", " b"), stream]
        transport = httpx.AsyncHTTPTransport(uds=stack.gateway.config.public.listen.removeprefix("unix:"))
        http: Any = httpx.AsyncClient(transport=transport)  # releases of the library differ in its type
        client = openai.AsyncOpenAI(base_url="http://gateway/v1", api_key="none", http_client=http)
        async with client:
            whole = await client.completions.create(model="auto", prompt=["x", "y"], max_tokens=2)
            events = await client.completions.create(model="auto", prompt=[1, 2, 3], logprobs=1, stream=True)
            text = "".join([found.choices[0].text async for found in events if found.choices])

        assert [choice.text for choice in whole.choices] == [" a", " b"]
        assert whole.usage is not None
        assert whole.usage.total_tokens == 5
        assert text == " a time"


@pytest.mark.parametrize(
    ("sent", "code", "param"),
    [
        (b'{"model":"auto"}', "invalid_value", "prompt"),
        (body(prompt=None), "invalid_value", "prompt"),
        (body(prompt=[]), "invalid_value", "prompt"),
        (body(prompt={}), "invalid_value", "prompt"),
        (body(prompt=["a", 1]), "invalid_value", "prompt[1]"),
        (body(prompt=[[1], []]), "invalid_value", "prompt[1]"),
        (body(prompt=[-1]), "invalid_value", "prompt[0]"),
        (body(n=1000), "invalid_value", "n"),
        (body(best_of=1000), "invalid_value", "best_of"),
        (body(logprobs=10**6), "invalid_value", "logprobs"),
        (body(max_tokens=-1), "invalid_value", "max_tokens"),
        (body(max_tokens=10**9), "invalid_value", "max_tokens"),
        (body(temperature=-1), "invalid_value", "temperature"),
        (body(stop=["x"] * 10_000), "invalid_value", "stop"),
        (body(stream="yes"), "invalid_value", "stream"),
        (body(stream_options={"include_usage": True}), "invalid_value", "stream_options"),
        (body(api_base="http://x"), "unsupported_parameter", "api_base"),
        (b'\xef\xbb\xbf{"model":"auto","prompt":"x"}', "invalid_json", None),
        (b'{"model":"auto","prompt":"\\ud800"}', "invalid_json", None),
        (b'{"model":"auto","prompt":"x","prompt":"y"}', "invalid_json", "prompt"),
        (b'{"model":"auto","prompt":' + b"[" * 10_000, "invalid_json", None),
        (b'["model"]', "invalid_json", None),
    ],
)
def test_a_bad_request_names_its_field(sent: Any, code: str, param: str | None) -> None:
    raw = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    with pytest.raises(InvalidRequest) as caught:
        completions_dialect().begin([]).parse(raw)

    assert (caught.value.code, caught.value.param) == (code, param)


def test_null_and_whole_floats_are_mended_and_the_rest_keeps_its_bytes() -> None:
    request = (
        completions_dialect().begin([]).parse(b'{"model":"auto","prompt":"x","max_tokens":7.0,"user":{},"x":1.50}')
    )

    assert request.operation is COMPLETIONS
    assert request.raw == b'{"model":"auto","prompt":"x","max_tokens":7,"x":1.50}'
    assert request.max_output_tokens == 7


def test_prompts_of_a_list_are_priced_together() -> None:
    request = completions_dialect().begin([]).parse(json.dumps(body(prompt=[[1, 2], [3]], n=2)).encode())

    assert request.num_choices == 4
    assert request.text_bytes == 12


def test_empty_stream_options_are_absent() -> None:
    body = {"model": "m", "prompt": "a", "stream_options": {}}
    assert not completions_dialect().begin(()).parse(json.dumps(body).encode()).stream


def test_token_ids_may_be_whole_floats_and_an_empty_prompt_is_one() -> None:
    parse = completions_dialect().begin([]).parse
    assert parse(b'{"model":"auto","prompt":[1.0,2.0]}').document["prompt"] == [1, 2]
    assert parse(b'{"model":"auto","prompt":"","stop":null,"n":null,"service_tier":{}}').document["prompt"] == ""


def test_a_list_of_prompts_keeps_its_bytes_beside_a_mended_field() -> None:
    request = completions_dialect().begin([]).parse(b'{"model":"auto","prompt":["\\u0061" , "b"],"max_tokens":7.0}')
    body = request.body_for("tiny")
    assert b'["\\u0061" , "b"]' in body
    assert json.loads(body)["max_tokens"] == 7
