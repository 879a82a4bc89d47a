"""Bytes that are not a request: each gets its status and a closed socket, and nothing of it reaches the application."""

from __future__ import annotations

import pytest

from gateway.http.asgi import Receive, Scope, Send
from tests.gateway.http.conftest import StartEdge
from tests.gateway.http.vectors import (
    BAD_CHUNKS,
    CHUNKED_HEAD,
    FRAMING,
    GET_HEAD,
    HEADERS,
    HOSTS,
    POST_HEAD,
    REQUEST_LINES,
    SMUGGLED,
    host_request,
)


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in (FRAMING | HEADERS).items()])
async def test_malformed_framing_and_headers_get_400_and_a_closed_socket(start_edge: StartEdge, data: bytes) -> None:
    await _is_refused(start_edge, data)


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in (HOSTS | REQUEST_LINES).items()])
async def test_malformed_targets_and_protocols_get_400_and_a_closed_socket(start_edge: StartEdge, data: bytes) -> None:
    await _is_refused(start_edge, data)


@pytest.mark.parametrize("name", ["space before the colon", "folded header", "NUL in a name", "bare CR in a value"])
async def test_a_fault_is_found_however_the_bytes_are_cut(start_edge: StartEdge, name: str) -> None:
    edge = await start_edge()
    async with edge.connect() as client:
        for byte in HEADERS[name]:
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        assert (await client.reply()).status == 400
        assert await client.rest() == b""
    assert edge.app.num_started == 0


async def _is_refused(start_edge: StartEdge, data: bytes) -> None:
    edge = await start_edge()
    async with edge.connect() as client:
        reply = await client.ask(data + SMUGGLED)
        assert (reply.status, reply.error["code"]) == (400, "invalid_request")
        assert reply.error["type"] == "invalid_request_error"
        assert reply.error["param"] is None
        assert reply.headers["connection"] == "close"
        assert reply.headers["x-penstock-error-code"] == "invalid_request"
        assert reply.headers["x-request-id"].startswith("req_")
        assert "server" not in reply.headers
        assert await client.rest() == b""
    assert edge.app.num_started == 0
    assert await edge.is_serving()
    assert edge.app.seen == [("GET", "/good", b"")]


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in BAD_CHUNKS.items()])
async def test_a_malformed_chunk_gets_400_and_its_request_never_completes(start_edge: StartEdge, body: bytes) -> None:
    edge = await start_edge()
    async with edge.connect() as client:
        reply = await client.ask(CHUNKED_HEAD + body + SMUGGLED)
        assert (reply.status, reply.error["code"]) == (400, "invalid_request")
        assert await client.rest() == b""
    assert edge.app.seen == []
    assert await edge.is_serving()
    assert edge.app.seen == [("GET", "/good", b"")]


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "QUERY"])
async def test_methods_that_are_not_served_get_405_with_allow(start_edge: StartEdge, method: str) -> None:
    edge = await start_edge()
    target = "edge.test:443" if method == "CONNECT" else "/bad"
    async with edge.connect() as client:
        reply = await client.ask(f"{method} {target} HTTP/1.1\r\nHost: edge.test:443\r\n\r\n".encode() + SMUGGLED)
        assert (reply.status, reply.error["code"]) == (405, "method_not_allowed")
        assert "POST" in reply.headers["allow"]
        assert await client.rest() == b""
    assert edge.app.num_started == 0


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "br", "gzip, gzip", "x-unknown"])
async def test_compressed_bodies_get_415_before_they_are_read(start_edge: StartEdge, encoding: str) -> None:
    edge = await start_edge()
    head = f"POST /bad HTTP/1.1\r\nHost: edge.test\r\nContent-Encoding: {encoding}\r\nContent-Length: 1000\r\n\r\n"
    async with edge.connect() as client:
        reply = await client.ask(head.encode())
        assert (reply.status, reply.error["code"]) == (415, "unsupported_media_type")
        assert await client.rest() == b""
    assert edge.app.num_started == 0


async def test_unusual_but_correct_requests_are_served(start_edge: StartEdge) -> None:
    edge = await start_edge()
    async with edge.connect() as client:
        for request in (
            b"\r\n" + GET_HEAD + b"\r\n",
            POST_HEAD + b"Content-Length: 5 \t\r\n\r\nabcde",
            POST_HEAD + b"Content-Length: 005\r\n\r\nabcde",
            POST_HEAD + b"transfer-ENCODING:\tChunked\r\n\r\n5;name=value\r\nabcde\r\n0\r\nX-Trailer: y\r\n\r\n",
            POST_HEAD + b"Content-Encoding: identity\r\nContent-Length: 5\r\n\r\nabcde",
            host_request(b"Host: Edge.Test:80", target=b"http://edge.test:80/bad?x"),
            host_request(b"Host: [::1]:8080"),
            GET_HEAD + b"X-Text: gr\xc3\xbc\xc3\x9fe\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost: edge.test\r\n\r\n",
        ):
            assert (await client.ask(request)).status == 200, request
    assert [body for _, _, body in edge.app.seen].count(b"abcde") == 4


async def test_trailers_do_not_become_headers(start_edge: StartEdge) -> None:
    names: list[bytes] = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        while message.get("more_body"):
            message = await receive()
        names.extend(name for name, _ in scope["headers"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    edge = await start_edge(handler)
    async with edge.connect() as client:
        await client.send(CHUNKED_HEAD + b"0\r\nAuthorization: Bearer stolen\r\n\r\n")
        await client.reader.readuntil(b"\r\n\r\n")
    assert b"authorization" not in names
    assert b"host" in names


async def test_an_offer_of_another_protocol_is_ignored_and_the_body_kept(start_edge: StartEdge) -> None:
    edge = await start_edge()
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    async with edge.connect() as client:
        reply = await client.ask(POST_HEAD + offer + b"Content-Length: 5\r\n\r\nabcde" + GET_HEAD + b"\r\n")
        assert (reply.status, reply.body) == (200, b"good:abcde")
        assert (await client.reply()).status == 200
    assert edge.app.seen == [("POST", "/bad", b"abcde"), ("GET", "/bad", b"")]
