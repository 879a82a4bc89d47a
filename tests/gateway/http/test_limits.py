"""Limits on what one request may weigh: each is refused as early as it can be known."""

from __future__ import annotations

import asyncio

import pytest

from gateway.http.asgi import Receive, Scope, Send, read_body, respond
from tests.gateway.http.conftest import StartEdge, edge_limits, get, post, until


@pytest.mark.parametrize("extra", [b"X-Big: " + b"a" * 5000, b"x" * 5000 + b": a", b"X-Open: " + b"a" * 40_000])
async def test_too_many_header_bytes_get_431(start_edge: StartEdge, extra: bytes) -> None:
    edge = await start_edge(header__max_bytes=4096)
    async with edge.connect() as client:
        reply = await client.call(get("/", extra))
        assert (reply.status, reply.error["code"]) == (431, "headers_too_large")
        assert await client.rest() == b""
    assert edge.app.num_started == 0
    assert await edge.is_serving()


async def test_an_endless_header_gets_431_before_it_ends(start_edge: StartEdge) -> None:
    edge = await start_edge(header__max_bytes=4096)
    async with edge.connect() as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: edge.test\r\nX-Endless: ")
        for _ in range(5):
            await client.send(b"a" * 1000)
        assert (await client.reply()).status == 431


async def test_headers_just_under_both_limits_pass(start_edge: StartEdge) -> None:
    edge = await start_edge(header__max_bytes=4096, header__max_fields=20)
    async with edge.connect() as client:
        assert (await client.call(get("/", *[b"X-A: b"] * 19))).status == 200
        assert (await client.call(get("/", b"X-Big: " + b"a" * 4000))).status == 200


async def test_too_many_header_fields_get_431(start_edge: StartEdge) -> None:
    edge = await start_edge(header__max_fields=20)
    async with edge.connect() as client:
        reply = await client.call(get("/", *[b"X-A: b"] * 20))
        assert (reply.status, reply.error["code"]) == (431, "headers_too_large")
    assert edge.app.num_started == 0


@pytest.mark.parametrize("is_complete", [True, False])
async def test_a_long_uri_gets_414(start_edge: StartEdge, is_complete: bool) -> None:
    edge = await start_edge(header__max_uri_bytes=1000)
    request = get("/" + "a" * 1000)
    async with edge.connect() as client:
        reply = await client.call(request if is_complete else request[:1010])
        assert (reply.status, reply.error["code"]) == (414, "uri_too_long")
        assert await client.rest() == b""
    assert edge.app.num_started == 0


async def test_a_declared_body_over_the_limit_gets_413_before_it_is_sent(start_edge: StartEdge) -> None:
    edge = await start_edge(body__max_bytes=1000)
    async with edge.connect() as client:
        reply = await client.call(post(b"a" * 1001)[:-1001])
        assert (reply.status, reply.error["code"]) == (413, "request_too_large")
        assert await client.rest() == b""
    assert edge.app.num_started == 0


async def test_413_reaches_a_client_that_is_still_sending(start_edge: StartEdge) -> None:
    edge = await start_edge(body__max_bytes=1000)
    async with edge.connect() as client:
        await client.send(post(b"a" * 2_000_000))
        assert (await client.reply()).status == 413


async def test_a_chunked_body_over_the_limit_gets_413_and_its_application_a_disconnect(start_edge: StartEdge) -> None:
    messages: list[str] = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] == "http.request":
            pass
        messages.append(message["type"])

    edge = await start_edge(handler, body__max_bytes=1000)
    async with edge.connect() as client:
        await client.send(b"POST /bad HTTP/1.1\r\nHost: edge.test\r\nTransfer-Encoding: chunked\r\n\r\n")
        await client.send(b"200\r\n" + b"a" * 512 + b"\r\n")
        await client.send(b"200\r\n" + b"a" * 512 + b"\r\n")
        reply = await client.reply()
        assert (reply.status, reply.error["code"]) == (413, "request_too_large")
        assert await client.rest() == b""
    assert messages == ["http.disconnect"]


async def test_a_body_of_exactly_the_limit_passes(start_edge: StartEdge) -> None:
    edge = await start_edge(body__max_bytes=1000)
    async with edge.connect() as client:
        assert (await client.call(post(b"a" * 1000))).body == b"good:" + b"a" * 1000


async def test_chunk_framing_that_outweighs_its_body_is_cut_off(start_edge: StartEdge) -> None:
    edge = await start_edge(header__max_bytes=4096)
    async with edge.connect() as client:
        await client.send(b"POST /bad HTTP/1.1\r\nHost: edge.test\r\nTransfer-Encoding: chunked\r\n\r\n5;")
        while not edge.refusals:
            await client.send(b"a" * 1000)
            await asyncio.sleep(0.001)
        assert (await client.reply()).status == 400
        assert await client.rest() == b""


async def test_too_many_trailers_get_431(start_edge: StartEdge) -> None:
    edge = await start_edge(header__max_fields=20)
    head = b"POST /bad HTTP/1.1\r\nHost: edge.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    async with edge.connect() as client:
        assert (await client.call(head + b"A: b\r\n" * 21 + b"\r\n")).status == 431


async def test_single_byte_chunks_are_served(start_edge: StartEdge) -> None:
    edge = await start_edge(header__max_bytes=512)
    async with edge.connect() as client:
        await client.send(b"POST /echo HTTP/1.1\r\nHost: edge.test\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(500):
            await client.send(b"1\r\nx\r\n")
        reply = await client.call(b"0\r\n\r\n")
        assert reply.body == b"good:" + b"x" * 500


async def test_continue_is_sent_when_the_application_requests_the_body(start_edge: StartEdge) -> None:
    edge = await start_edge()
    async with edge.connect() as client:
        assert (await client.call(post(b"hello", b"Expect: 100-continue")[:-5])).status == 100
        assert (await client.call(b"hello")).body == b"good:hello"
        assert (await client.call(get("/again"))).status == 200


async def test_expecting_continue_with_a_length_over_the_limit_gets_413_and_no_continue(start_edge: StartEdge) -> None:
    edge = await start_edge(body__max_bytes=1000)
    async with edge.connect() as client:
        reply = await client.call(post(b"a" * 1001, b"Expect: 100-continue")[:-1001])
        assert reply.status == 413
        assert await client.rest() == b""


async def test_an_answer_without_reading_the_expected_body_closes_the_connection(start_edge: StartEdge) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    edge = await start_edge(handler)
    async with edge.connect() as client:
        reply = await client.call(post(b"hello", b"Expect: 100-continue")[:-5])
        assert (reply.status, reply.headers["connection"]) == (401, "close")
        assert await client.rest() == b""


async def test_too_many_pipelined_requests_are_cut_off_after_the_answered_ones(start_edge: StartEdge) -> None:
    edge = await start_edge(connections__max_pipelined=4)
    async with edge.connect() as client:
        await client.send(b"".join(post(b"%d" % number) for number in range(20)))
        replies = [await client.reply() for _ in range(6)]
        assert [reply.status for reply in replies] == [200] * 5 + [400]
        assert await client.rest() == b""


async def test_a_large_request_behind_a_slow_one_waits_unread_and_is_served_whole(start_edge: StartEdge) -> None:
    release = asyncio.Event()
    seen: list[int] = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await release.wait()
        seen.append(len(await read_body(receive, 10**9)))
        await respond(send, 200, [], b"ok")

    edge = await start_edge(handler)
    async with edge.connect() as client:
        await client.send(post(b"1"))
        await until(lambda: edge.app.num_started == 1)
        sending = asyncio.ensure_future(client.send(post(b"a" * 8_000_000) + post(b"3")))
        await asyncio.sleep(0.05)
        assert not sending.done()  # the kernel's buffers are full: nobody reads
        release.set()
        assert [(await client.reply()).status for _ in range(3)] == [200, 200, 200]
        await sending
    assert seen == [1, 8_000_000, 1]


async def test_refusals_are_counted_by_listener(start_edge: StartEdge) -> None:
    edge = await start_edge()
    async with edge.connect() as client:
        await client.call(b"BAD\r\n\r\n")
    await until(lambda: len(edge.refusals) == 1)
    assert [(listener, error.status) for listener, error in edge.refusals] == [("public", 400)]


@pytest.mark.parametrize("field", ["header__timeout_s", "connections__max_total", "header__max_uri_bytes"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_that_would_switch_a_protection_off_is_an_error(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field.partition('__')[2]}: expected a positive number"):
        edge_limits(**{field: value})
