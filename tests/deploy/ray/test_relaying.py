"""The relay of one request to an engine, against a scripted one on a Unix socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from deploy.ray.relaying import relay
from tests.gateway.scripted import ScriptedUpstream, Wire, chunk, complete

BODY = json.dumps({"model": "m", "messages": [], "stream": True}).encode()


@asynccontextmanager
async def engine(folder: Path) -> AsyncIterator[tuple[ScriptedUpstream, httpx.AsyncClient]]:
    async with ScriptedUpstream(folder / "engine.sock") as upstream:
        transport = httpx.AsyncHTTPTransport(uds=str(folder / "engine.sock"))
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            yield upstream, client


def request(path: str = "/v1/chat/completions", body: bytes = BODY) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    headers = [(b"content-type", b"application/json"), (b"connection", b"close"), (b"x-request-id", b"r1")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    return Request(scope, receive)


async def sent(response: Response, *, until: int | None = None) -> list[bytes]:
    """The body's parts; with `until` the client leaves after so many."""
    parts: list[bytes] = []
    async for part in response.body_iterator:  # type: ignore[attr-defined]
        parts.append(part)
        if until is not None and len(parts) == until:
            await response.body_iterator.aclose()  # type: ignore[attr-defined]
            break
    return parts


async def test_a_stream_passes_as_it_is(tmp_path: Path) -> None:
    async with engine(tmp_path) as (upstream, client):
        response = await relay(client, request())
        assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream")
        assert b"".join(await sent(response)).endswith(b"data: [DONE]\n\n")
        received = upstream.received[0]
        assert (received.body, received.headers["x-request-id"]) == (BODY, "r1")


async def test_a_client_that_leaves_closes_the_engines_connection(tmp_path: Path) -> None:
    async def endless(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hel"))
        await wire.is_gone.wait()

    async with engine(tmp_path) as (upstream, client):
        upstream.scripts = [endless]
        response = await relay(client, request())
        await sent(response, until=1)
        await asyncio.wait_for(upstream.gone.wait(), 2.0)


async def test_an_engine_that_dies_ends_the_stream_with_an_error_and_without_done(tmp_path: Path) -> None:
    async def dying(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hel"))
        wire.abort()

    async with engine(tmp_path) as (upstream, client):
        upstream.scripts = [dying]
        parts = await sent(await relay(client, request()))
        assert json.loads(parts[-1].removeprefix(b"data: "))["error"]["code"] == "engine_died"
        assert b"[DONE]" not in b"".join(parts)


async def test_an_engine_that_is_gone_is_a_503(tmp_path: Path) -> None:
    async with engine(tmp_path) as (upstream, client):
        await upstream.close()
        response = await relay(client, request())
        assert response.status_code == 503


@pytest.mark.parametrize("path", ["/engine/load", "/metrics"])
async def test_figures_of_one_engine_are_not_served(tmp_path: Path, path: str) -> None:
    async with engine(tmp_path) as (upstream, client):
        assert (await relay(client, request(path))).status_code == 404
        assert upstream.received == []


async def test_a_plain_answer_that_breaks_off_is_an_error_of_its_length(tmp_path: Path) -> None:
    async def broken(wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        wire.abort()

    async with engine(tmp_path) as (upstream, client):
        upstream.scripts = [broken, complete]
        with pytest.raises(httpx.HTTPError):
            await sent(await relay(client, request()))
