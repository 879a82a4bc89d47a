"""HTTP as it should not be: bounded, answered in the envelope, and the next client is served."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from engine.frontend.http import protocol
from tests.engine.frontend.conftest import RawConnection, Running, StartFront, chat

HOST = b"host: test\r\n"


async def send(running: Running, data: bytes) -> bytes:
    """What comes back for these bytes until the server closes or falls silent."""
    reader, writer = await asyncio.open_unix_connection(running.path)
    writer.write(data)
    received = b""
    try:
        while piece := await asyncio.wait_for(reader.read(65536), 0.3):
            received += piece
    except (TimeoutError, ConnectionResetError):
        pass
    writer.transport.abort()
    return received


def status_of(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


LIVEZ = b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n"
LAST = b"GET /v1/models HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"


def completion(**fields: Any) -> bytes:
    """A chat request as bytes."""
    body = json.dumps(chat(**fields)).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    return head + HOST + b"\r\n" + body


async def test_pipelined_requests_are_answered_in_order(running: Running) -> None:
    core = await running.core()
    sending = asyncio.create_task(send(running, completion() + LIVEZ + completion() + LAST))
    first = await core.next_add()
    core.emit(first.seq_id, running.ids("hello"), "length")
    second = await core.next_add()
    core.emit(second.seq_id, running.ids("world"), "length")
    response = await sending
    assert response.count(b"HTTP/1.1 200") == 4
    marks = [b'"content":"hello"', b'"alive":true', b'"content":"world"', b'"object":"list"']
    places = [response.index(mark) for mark in marks]
    assert places == sorted(places)


async def test_a_pipelined_request_that_comes_in_pieces_is_answered_too(running: Running) -> None:
    core = await running.core()
    reader, writer = await asyncio.open_unix_connection(running.path)
    writer.write(completion() + LAST[:9])
    add = await core.next_add()
    writer.write(LAST[9:])
    core.emit(add.seq_id, running.ids("hello"), "length")
    response = await asyncio.wait_for(reader.read(), 5)
    assert (response.count(b"HTTP/1.1 200"), b'"object":"list"' in response) == (2, True)
    await RawConnection(reader, writer).leave()


HOPELESS = {
    "nonsense": (b"nonsense\r\n\r\n", 400),
    "too many headers": (b"GET /livez HTTP/1.1\r\n" + HOST + b"x: 1\r\n" * 150 + b"\r\n", 431),
    "a large body": (
        b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"content-length: 200000\r\n\r\n" + b"x" * 200_000,
        413,
    ),
    "too many": (LIVEZ * 100, 400),
}


@pytest.mark.parametrize(("rest", "status"), HOPELESS.values(), ids=HOPELESS.keys())
async def test_what_cannot_be_pipelined_is_refused_behind_what_can(running: Running, rest: bytes, status: int) -> None:
    core = await running.core()
    sending = asyncio.create_task(send(running, completion() + LIVEZ + rest))
    core.emit((await core.next_add()).seq_id, running.ids("hello"), "length")
    response = await sending
    *answered, refused = [int(piece[:3]) for piece in response.split(b"HTTP/1.1 ")[1:]]
    assert set(answered) == {200}
    assert 2 <= len(answered) <= 20
    assert refused == status
    assert b'"content":"hello"' in response
    assert b"connection: close" in response.rpartition(b"HTTP/1.1 ")[2].lower()


async def test_a_pipelined_request_that_never_ends_does_not_cut_the_answer_under_way(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEADERS_TIMEOUT_S", 0.05)
    core = await running.core()
    reader, writer = await asyncio.open_unix_connection(running.path)
    writer.write(completion(stream=True) + b"GET /livez HT")
    add = await core.next_add()
    await asyncio.sleep(0.15)  # the server's own timer
    core.emit(add.seq_id, running.ids("hello"), "length")
    response = await asyncio.wait_for(reader.read(), 5)
    stream, _, refusal = response.partition(b"0\r\n\r\n")
    assert b"[DONE]" in stream
    assert stream.count(b"HTTP/1.1 ") == 1
    assert status_of(refusal) == 408
    await RawConnection(reader, writer).leave()


async def test_a_client_that_leaves_behind_pipelined_requests_is_noticed(running: Running) -> None:
    core = await running.core()
    reader, writer = await asyncio.open_unix_connection(running.path)
    writer.write(completion(stream=True) + LIVEZ + completion())
    add = await core.next_add()
    await RawConnection(reader, writer).leave()
    assert (await core.next_abort()).seq_ids == [add.seq_id]
    assert core.adds.empty()


async def test_requests_one_after_another_share_a_connection(running: Running) -> None:
    client = await running.raw("GET", "/livez")
    for _ in range(3):
        assert b"200 OK" in await client.read_until(b'{"alive":true}')
        client.writer.write(b"GET /livez HTTP/1.1\r\nhost: test\r\n\r\n")
    await client.leave()


async def test_headers_that_dawdle_are_a_408(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADERS_TIMEOUT_S", 0.05)
    assert status_of(await send(running, b"GET /livez HTTP/1.1\r\nx: ")) == 408
    assert await send(running, b"") == b"", "who never began a request is told nothing"


async def test_a_body_that_dawdles_is_a_408(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "BODY_TIMEOUT_S", 0.05)
    head = b"POST /v1/completions HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 500\r\n"
    reader, writer = await asyncio.open_unix_connection(running.path)
    writer.write(head + HOST + b"\r\n{")
    assert status_of(await asyncio.wait_for(reader.read(), 2)) == 408
    await RawConnection(reader, writer).leave()


async def test_a_body_over_the_limit_is_refused_before_it_is_read(start_front: StartFront) -> None:
    async with start_front(max_body_bytes=1000) as running:
        head = b"POST /v1/completions HTTP/1.1\r\ncontent-type: application/json\r\n" + HOST
        declared = await send(running, head + b"expect: 100-continue\r\ncontent-length: 1001\r\n\r\n")
        assert status_of(declared) == 413
        chunked = head + b"transfer-encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n"
        assert status_of(await send(running, chunked)) == 413


async def test_an_upgrade_is_not_made(running: Running) -> None:
    upgrade = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eA==\r\n"
    assert status_of(await send(running, b"GET /v1/models HTTP/1.1\r\n" + HOST + upgrade + b"\r\n")) in (200, 400)


UNKNOWN_MODEL = json.dumps({**chat(), "model": "nope"}).encode()
DECLARED = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(UNKNOWN_MODEL) + UNKNOWN_MODEL
CHUNKED = b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
    len(UNKNOWN_MODEL),
    UNKNOWN_MODEL,
)
POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST
H2C = b"upgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
OFFERS = {
    "h2c": b"connection: Upgrade, HTTP2-Settings\r\n" + H2C,
    "h2c and close": b"connection: close, Upgrade, HTTP2-Settings\r\n" + H2C,
    "h2c and keep-alive": b"Connection: keep-alive\r\nConnection: upgrade\r\n" + H2C,
    "unknown": b"connection: upgrade\r\nupgrade: foo/2\r\n",
    "without connection": H2C,
    "without upgrade": b"connection: upgrade\r\n",
    "other tokens": b"connection: foo, keep-alive, content-length\r\n",
    "expectation": b"expect: 100-continue\r\n",
}


@pytest.mark.parametrize("body", [DECLARED, CHUNKED], ids=["declared", "chunked"])
@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS.keys())
async def test_a_body_is_read_whatever_protocol_its_head_offers(running: Running, offer: bytes, body: bytes) -> None:
    await running.core()
    response = (await send(running, POST + offer + body)).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert status_of(response) == 404
    assert json.loads(response.partition(b"\r\n\r\n")[2])["error"]["code"] == "model_not_found"
    assert (b"connection: close" in response.lower()) == (b"close" in offer)


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
async def test_an_offer_in_the_older_version_keeps_its_version(running: Running, version: bytes) -> None:
    head = POST.replace(b"HTTP/1.1", version) + OFFERS["h2c"]
    response = await send(running, head + DECLARED)
    assert (b"connection: close" in response.lower()) == (version == b"HTTP/1.0")


async def test_a_body_with_an_offer_may_come_in_pieces_and_between_other_requests(running: Running) -> None:
    reader, writer = await asyncio.open_unix_connection(running.path)
    data = LIVEZ + POST + OFFERS["h2c"] + DECLARED + LIVEZ + POST + OFFERS["unknown"] + CHUNKED + LAST
    for start in range(0, len(data), 37):
        writer.write(data[start : start + 37])
        await asyncio.sleep(0)
    response = await asyncio.wait_for(reader.read(), 5)
    assert [int(piece[:3]) for piece in response.split(b"HTTP/1.1 ")[1:]] == [200, 404, 200, 404, 200]
    await RawConnection(reader, writer).leave()


REFUSED = {
    "websocket": (LIVEZ[:-2] + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n", 400),
    "websocket among others": (LIVEZ[:-2] + b"connection: upgrade\r\nupgrade: h2c, WebSocket\r\n\r\n", 400),
    "websocket with a body": (POST + b"connection: upgrade\r\nupgrade: websocket\r\n" + DECLARED, 400),
    "unknown expectation": (POST + b"expect: 200-ok\r\n" + DECLARED, 417),
    "version 2": (LIVEZ.replace(b"1.1", b"2.0"), 400),
    "no version": (b"GET /livez\r\n\r\n", 400),
    "tunnel": (b"CONNECT /livez HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    "tunnel to a host": (b"CONNECT example.org:443 HTTP/1.1\r\n" + HOST + b"\r\n", 405),
}


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED.keys())
async def test_other_protocols_are_refused_in_the_envelope(running: Running, data: bytes, status: int) -> None:
    response = await send(running, data)
    assert status_of(response) == status
    assert response.count(b"content-type: ") == 1
    assert b"connection: close" in response.lower()
    assert set(json.loads(response.partition(b"\r\n\r\n")[2])["error"]) == {"message", "type", "param", "code"}
    assert (await running.client.get("/livez")).status_code == 200


@pytest.mark.parametrize("form", [b"GET http://test/livez HTTP/1.1\r\n" + HOST, b"GET /livez HTTP/1.0\r\n"])
async def test_older_and_absolute_forms_are_served(running: Running, form: bytes) -> None:
    assert status_of(await send(running, form + b"\r\n")) == 200
