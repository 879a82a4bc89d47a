from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loadtests.clients.http_client import Address, LoadConnection, clock, request_bytes
from loadtests.engines.http_server import serve
from loadtests.engines.scripted_upstream import AnswerScript, RequestTally, ScriptedConnection
from loadtests.harness.stack import chat_body

DEFAULT = AnswerScript(num_chunks=3, chunk_chars=4)


@pytest.fixture
async def upstream() -> AsyncIterator[Address]:
    with tempfile.TemporaryDirectory(prefix="su") as folder:
        path = Path(folder) / "u.sock"
        tally = RequestTally(DEFAULT)
        task = asyncio.ensure_future(serve(str(path), lambda: ScriptedConnection(tally)))
        while not path.exists():
            await asyncio.sleep(0.001)
        yield Address(path=str(path))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def call(address: Address, **fields: object) -> tuple[int, bytes]:
    connection = await LoadConnection.open(address, keep_body=True)
    request = request_bytes("POST", "/v1/chat/completions", chat_body("m", "hi", **fields))
    exchange = await connection.exchange(request)
    connection.close()
    if exchange.error is not None:
        raise OSError(exchange.error)
    return exchange.status, connection.scanner.content


async def test_answers_in_the_shape_of_openai(upstream: Address) -> None:
    status, body = await call(upstream)
    answer = json.loads(body)
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == "x" * 12
    assert answer["usage"]["completion_tokens"] == 3


async def test_streams_a_role_its_chunks_an_end_and_the_mark(upstream: Address) -> None:
    _, body = await call(upstream, stream=True)
    *events, done, rest = body.split(b"\n\n")
    choices = [json.loads(event.removeprefix(b"data: "))["choices"][0] for event in events]
    assert [choice["delta"].get("content") for choice in choices] == ["", "xxxx", "xxxx", "xxxx", None]
    assert (choices[-1]["finish_reason"], done, rest) == ("stop", b"data: [DONE]", b"")


async def test_a_request_may_carry_its_own_script(upstream: Address) -> None:
    status, body = await call(upstream, user="script:status=503")
    assert status == 503
    assert b"as scripted" in body
    before = clock()
    _, body = await call(upstream, user="script:first_byte_ms=30,num_chunks=4,chunks_per_s=100", stream=True)
    assert clock() - before > 0.05
    assert body.count(b'"content":"xxxx"') == 4


async def test_can_fail_in_the_middle_of_a_stream(upstream: Address) -> None:
    with pytest.raises(OSError, match="connection"):
        await call(upstream, user="script:fail_after=2", stream=True)


async def test_counts_whoever_leaves(upstream: Address) -> None:
    connection = await LoadConnection.open(upstream)
    body = chat_body("m", "hi", user="script:first_byte_ms=5000")
    connection.start(request_bytes("POST", "/v1/chat/completions", body), lambda exchange: None)
    await asyncio.sleep(0.01)
    assert "scripted_open 1" in await metrics(upstream)
    connection.close()
    await asyncio.sleep(0.01)
    after = await metrics(upstream)
    assert "scripted_open 0\n" in after
    assert "scripted_aborted_total 1\n" in after


async def metrics(address: Address) -> str:
    connection = await LoadConnection.open(address, keep_body=True)
    await connection.exchange(request_bytes("GET", "/metrics"))
    connection.close()
    return connection.scanner.content.decode()


async def test_takes_a_request_in_pieces(upstream: Address) -> None:
    reader, writer = await asyncio.open_unix_connection(upstream.path)
    for byte in request_bytes("POST", "/v1/chat/completions", chat_body("m", "hi")):
        writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()
