"""The gateway's own encoder through a whole gateway, with the real weights and the openai library."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from gateway.api.encoder import EMBEDDINGS_PATH
from gateway.embedding.graph import build_graph
from gateway.embedding.make import graph_file
from gateway.embedding.model_files import installed_model
from tests.gateway.stack import Reply, Stack, running

POLICY = """
schema_version: 1
deployments:
  - {{id: encoder, url: "builtin:encoder", model: all-minilm-l6-v2, limits: {{max_in_flight: 4}}}}
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny}}
routes:
  - id: embeddings
    match: {{models: [embeddings]}}
    select: {{candidates: [encoder]}}
    cache: {{mode: exact_then_semantic, scope: tenant, ttl_s: 60}}
"""


@pytest.fixture(scope="session")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the encoder's graph, made once."""
    folder, files = tmp_path_factory.mktemp("graphs"), installed_model()
    graph_file(folder, files, "fp32").make(lambda: build_graph(files, "fp32"))
    return folder


@pytest.fixture
async def stack(tmp_path: Path, graphs: Path) -> AsyncIterator[Stack]:
    (tmp_path / "encoder").symlink_to(graphs)
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        await ready(stack)
        yield stack


async def ready(stack: Stack) -> None:
    """Wait for the encoder to be loaded, and probed."""
    assert stack.gateway.snapshot is not None
    live = stack.gateway.snapshot.deployments["encoder"]
    async with asyncio.timeout(60):
        while not live.is_ready:
            await asyncio.sleep(0.05)


def body(value: Any = "hello world", **fields: Any) -> dict[str, Any]:
    return {"model": "embeddings", "input": value, **fields}


async def embed(stack: Stack, *sent: Any, **fields: Any) -> Reply:
    return await stack.call(body(*sent, **fields), path=EMBEDDINGS_PATH)


def library(stack: Stack) -> openai.AsyncOpenAI:
    transport = httpx.AsyncHTTPTransport(uds=stack.gateway.config.public.listen.removeprefix("unix:"))
    client: Any = httpx.AsyncClient(transport=transport)  # releases of the library differ in its type
    return openai.AsyncOpenAI(base_url="http://gateway/v1", api_key="none", http_client=client, max_retries=0)


async def test_embeddings_are_recorded_and_cached_like_any_request(stack: Stack) -> None:
    first = await embed(stack)
    hit = await embed(stack)
    other = await embed(stack, dimensions=8)

    assert (first.status, first.headers["x-penstock-deployment"]) == (200, "encoder")
    answer = first.json
    assert (answer["object"], answer["model"]) == ("list", "all-minilm-l6-v2")
    assert answer["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
    assert [(one["object"], one["index"], len(one["embedding"])) for one in answer["data"]] == [("embedding", 0, 384)]
    assert (hit.headers["x-penstock-cache"], hit.body) == ("hit-exact", first.body)
    assert (other.headers["x-penstock-cache"], len(other.json["data"][0]["embedding"])) == ("miss", 8)
    line = stack.lines()[0]
    assert (line["outcome"], line["route"], line["prompt_tokens"], line["completion_tokens"]) == (
        *("completed", "embeddings"),
        *(4, 0),
    )
    assert "ttft_ms" not in line


async def test_the_openai_library_reads_both_encodings(stack: Stack) -> None:
    async with library(stack) as client:
        packed = await client.embeddings.create(model="encoder", input=["hello world", "good night"])
        plain = await client.embeddings.create(
            model="encoder", input=["hello world", "good night"], encoding_format="float"
        )

    vectors = np.array([one.embedding for one in packed.data])
    assert vectors.shape == (2, 384)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.abs(vectors - np.array([one.embedding for one in plain.data])).max() < 1e-8
    assert packed.usage.prompt_tokens == 8


async def test_base64_has_little_endian_floats(stack: Stack) -> None:
    packed = (await embed(stack, encoding_format="base64", dimensions=3)).json["data"][0]["embedding"]
    plain = (await embed(stack, encoding_format="float", dimensions=3)).json["data"][0]["embedding"]

    assert np.frombuffer(base64.b64decode(packed), "<f4") == pytest.approx(plain, abs=1e-8)


async def test_a_batch_of_the_largest_size_is_served(stack: Stack) -> None:
    answer = (await embed(stack, ["a"] * 2048, dimensions=2)).json

    assert [one["index"] for one in answer["data"]] == list(range(2048))
    assert answer["usage"]["total_tokens"] == 3 * 2048


BAD: list[tuple[Any, str, str | None]] = [
    (body(""), "invalid_value", "input"),
    (body([]), "invalid_value", "input"),
    (body(None), "invalid_value", "input"),
    (body(["a", ""]), "invalid_value", "input[1]"),
    (body(["a", 1]), "invalid_value", "input[1]"),
    (body([[]]), "invalid_value", "input[0]"),
    (body(["a"] * 2049), "invalid_value", "input"),
    (body(["a"] * 100_000), "invalid_value", "input"),
    (body({"a": 1}), "invalid_value", "input"),
    (body(["a", "word " * 300]), "context_length_exceeded", "input[1]"),
    (body([10**6]), "invalid_value", "input"),
    (body(dimensions=385), "invalid_value", "dimensions"),
    (body(dimensions=0), "invalid_value", "dimensions"),
    (body(dimensions=1.5), "invalid_value", "dimensions"),
    (body(encoding_format="int8"), "invalid_value", "encoding_format"),
    (body(api_base="http://x"), "unsupported_parameter", "api_base"),
    (body(model="tiny"), "unsupported_operation", "model"),
    (b'{"model":"embeddings","input":"\\ud800"}', "invalid_json", None),
    (b'{"model":"embeddings","input":"a","input":"b"}', "invalid_json", "input"),
    (b'["a"]', "invalid_json", None),
]


async def test_a_bad_request_names_its_field(stack: Stack) -> None:
    replies = [await stack.call(sent, path=EMBEDDINGS_PATH) for sent, _, _ in BAD]

    found = [(reply.status, reply.error["code"], reply.error["param"]) for reply in replies]
    assert found == [(400, code, param) for _, code, param in BAD]


async def test_the_encoder_makes_no_chat_completions(stack: Stack) -> None:
    reply = await stack.call({"model": "embeddings", "messages": [{"role": "user", "content": "hi"}]})

    assert (reply.status, reply.error["code"]) == (400, "unsupported_operation")
    assert reply.error["message"] == (
        "Model 'embeddings' serves embeddings, not chat. For chat use auto, tiny and small."
    )


async def test_implied_auto_leaves_the_encoder_out_of_chat(stack: Stack) -> None:
    reply = await stack.call({"model": "auto", "messages": [{"role": "user", "content": "hi"}]})

    assert reply.headers["x-penstock-deployment"] == "small"


async def test_a_client_that_leaves_ends_its_work(stack: Stack) -> None:
    _, writer = await stack.connect()
    data = json.dumps(body(["word " * 200] * 2000)).encode()
    head = f"POST {EMBEDDINGS_PATH} HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    assert stack.gateway.snapshot is not None
    async with asyncio.timeout(10):
        while not stack.gateway.snapshot.deployments["encoder"].in_flight:
            await asyncio.sleep(0.01)
    writer.close()
    await stack.until_idle()

    assert stack.lines()[-1]["outcome"] == "cancelled"
    assert (await embed(stack, "next")).status == 200


async def test_an_encoder_that_is_not_loaded_is_not_ready(tmp_path: Path) -> None:
    settings = {"process.embeddings.model": str(tmp_path / "none")}
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path), settings=settings) as stack:
        reply = await embed(stack)

        assert (reply.status, reply.headers["x-penstock-shed-reason"]) == (503, "overload")
        assert "no such folder" in stack.lines("encoder_failed")[0]["error"]


async def test_a_deployment_elsewhere_makes_embeddings_with_every_field(tmp_path: Path) -> None:
    policy = POLICY.format(folder=tmp_path).replace("model: tiny}", "model: tiny, operations: [embeddings]}")
    answer = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1]}],"model":"tiny"}'
    async with running(tmp_path, policy=policy) as stack:

        async def script(wire: Any) -> None:
            await wire.answer(answer)

        async def empty(wire: Any) -> None:
            await wire.answer(b'{"object":"list","data":[]}')

        stack.small.scripts = [script, empty]
        sent = body(model="tiny", encoding_format="int8", input_type="query")
        reply = await stack.call(sent, path=EMBEDDINGS_PATH)
        broken = await stack.call(sent, path=EMBEDDINGS_PATH)

        assert (reply.status, reply.body) == (200, answer)
        assert stack.small.received[0].line.startswith("POST /v1/embeddings ")
        assert stack.small.received[0].json == sent
        assert (broken.status, broken.error["code"]) == (502, "upstream_error")
        assert "no list of embeddings" in broken.error["message"]
