"""Responses on the wire: framing, and what a broken application resembles from outside."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from gateway.http.asgi import Receive, Scope, Send, edge_channel, respond
from gateway.http.exchange import Outflow
from tests.gateway.http.conftest import Handler, StartEdge, get, post


def _answer(*bodies: bytes, status: int = 200, headers: Any = ()) -> Handler:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        for body in bodies[:-1]:
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": bodies[-1] if bodies else b""})

    return handler


async def test_a_whole_answer_is_one_write_with_a_length(
    start_edge: StartEdge, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []
    original = Outflow.write

    def record(self: Outflow, data: bytes) -> None:
        writes.append(data)
        original(self, data)

    monkeypatch.setattr(Outflow, "write", record)
    edge = await start_edge(_answer(b"hello", headers=[(b"x-a", b"b")]))
    async with edge.connect() as client:
        reply = await client.call(get())
    assert (reply.body, reply.headers["content-length"], reply.headers["x-a"]) == (b"hello", "5", "b")
    assert "date" in reply.headers
    assert "server" not in reply.headers
    assert len(writes) == 1


async def test_a_stream_is_chunked_and_the_connection_stays(start_edge: StartEdge) -> None:
    edge = await start_edge(_answer(b"one", b"", b"two", b""))
    async with edge.connect() as client:
        for _ in range(2):
            reply = await client.call(get())
            assert reply.headers["transfer-encoding"] == "chunked"
            assert reply.body == b"onetwo"


async def test_the_head_of_a_stream_leaves_before_its_first_piece(start_edge: StartEdge) -> None:
    go = asyncio.Event()

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await go.wait()
        await send({"type": "http.response.body", "body": b"late"})

    edge = await start_edge(handler)
    async with edge.connect() as client:
        await client.send(get())
        head = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 5.0)
        assert b"transfer-encoding: chunked" in head
        go.set()
        assert await client.reader.readuntil(b"0\r\n\r\n") == b"4\r\nlate\r\n0\r\n\r\n"


async def test_a_relay_writes_through_the_channel(start_edge: StartEdge) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        channel = edge_channel(scope)
        assert channel is not None
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert channel.write(b"one")
        assert channel.write(b"")
        await send({"type": "http.response.body", "body": b"two", "more_body": True})
        if not channel.write(b"x" * 1_000_000):
            await channel.drain()
        await send({"type": "http.response.body"})

    edge = await start_edge(handler)
    async with edge.connect() as client:
        reply = await client.call(get())
        assert reply.body == b"onetwo" + b"x" * 1_000_000
        assert not client.reader.at_eof()


async def test_http_1_0_gets_its_body_to_the_end_of_the_connection(start_edge: StartEdge) -> None:
    edge = await start_edge(_answer(b"one", b"two"))
    async with edge.connect() as client:
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        reply = await client.reply()
        assert (reply.headers["connection"], reply.body) == ("close", b"onetwo")
        assert "transfer-encoding" not in reply.headers


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [(b"HEAD / HTTP/1.1\r\nHost: edge.test\r\n\r\n", 200), (get(), 204), (get(), 304)],
)
async def test_answers_that_have_no_body_get_none(start_edge: StartEdge, request_bytes: bytes, status: int) -> None:
    edge = await start_edge(_answer(b"body", status=status))
    async with edge.connect() as client:
        for _ in range(2):
            await client.send(request_bytes)
            head = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 5.0)
            assert head.startswith(b"HTTP/1.1 %d " % status)
            assert b"transfer-encoding" not in head
    assert edge.app.num_started == 2


async def test_a_head_answer_keeps_the_length_a_get_would_have(start_edge: StartEdge) -> None:
    edge = await start_edge(_answer(b"", headers=[(b"content-length", b"123")]))
    async with edge.connect() as client:
        await client.send(b"HEAD / HTTP/1.1\r\nHost: edge.test\r\n\r\n")
        assert b"content-length: 123\r\n" in await client.reader.readuntil(b"\r\n\r\n")


async def test_an_answer_before_the_body_was_read_leaves_the_connection_usable(start_edge: StartEdge) -> None:
    edge = await start_edge(_answer(b"early"))
    async with edge.connect() as client:
        await client.send(post(b"a" * 1000)[:-500])
        assert (await client.reply()).body == b"early"
        await client.send(b"a" * 500)
        assert (await client.call(get())).body == b"early"


async def test_connection_close_from_the_application_closes(start_edge: StartEdge) -> None:
    edge = await start_edge(_answer(b"bye", headers=[(b"connection", b"close")]))
    async with edge.connect() as client:
        assert (await client.call(get())).headers["connection"] == "close"
        assert await client.rest() == b""


async def _raises(scope: Any, receive: Any, send: Any) -> None:
    raise LookupError("secret detail")


async def _returns(scope: Any, receive: Any, send: Any) -> None:
    return


async def _starts_only(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def _splits_a_header(scope: Any, receive: Any, send: Any) -> None:
    await respond(send, 200, [(b"x-a", b"b\r\nset-cookie: c")], b"")


@pytest.mark.parametrize("handler", [_raises, _returns, _starts_only, _splits_a_header])
async def test_an_application_that_fails_before_the_head_left_gets_500_and_reports_nothing(
    start_edge: StartEdge, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    edge = await start_edge(handler)
    with caplog.at_level(logging.CRITICAL, "penstock.edge"):
        async with edge.connect() as client:
            reply = await client.call(get())
            assert (reply.status, reply.error["code"]) == (500, "internal_error")
            assert reply.headers["x-request-id"] in reply.error["message"]
            assert b"secret" not in reply.body
            assert "set-cookie" not in reply.headers
            assert await client.rest() == b""


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"100")]])
async def test_an_application_that_fails_in_a_stream_leaves_it_visibly_cut(
    start_edge: StartEdge, headers: list[tuple[bytes, bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise LookupError

    edge = await start_edge(handler)
    with caplog.at_level(logging.CRITICAL, "penstock.edge"):
        async with edge.connect() as client:
            await client.send(get())
            received = await client.rest()
    assert b"half" in received
    assert not received.endswith(b"0\r\n\r\n")


async def test_a_bad_body_behind_a_response_that_has_begun_cuts_it_visibly(start_edge: StartEdge) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"early", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    edge = await start_edge(handler)
    async with edge.connect() as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: edge.test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await client.reader.readuntil(b"early")
        await client.send(b"zz\r\n")
        assert await client.rest() == b"\r\n"
    assert await edge.server.drain(1.0)


async def test_a_body_longer_than_declared_is_an_error_and_not_sent(
    start_edge: StartEdge, caplog: pytest.LogCaptureFixture
) -> None:
    edge = await start_edge(_answer(b"too long", headers=[(b"content-length", b"3")]))
    with caplog.at_level(logging.CRITICAL, "penstock.edge"):
        async with edge.connect() as client:
            await client.send(get())
            assert b"too long" not in await client.rest()


async def test_the_date_is_part_of_every_answer(start_edge: StartEdge) -> None:
    edge = await start_edge()
    async with edge.connect() as client:
        assert (await client.call(get())).headers["date"].endswith(" GMT")
        assert (await client.call(b"BAD\r\n\r\n")).headers["date"].endswith(" GMT")
