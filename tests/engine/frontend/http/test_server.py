"""HTTP as it should not be: bounded, answered in the envelope, and the next client is served."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfigError
from engine.frontend.http import server
from engine.frontend.http.server import bind
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


NOT_HTTP = [
    b"POST /livez HTTP/1.1\r\n" + HOST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /livez HTTP/1.1\r\n" + HOST + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    b"POST /livez HTTP/1.1\r\n" + HOST + b"content-length: +5\r\n\r\nhello",
    b"POST /livez HTTP/1.1\r\n" + HOST + b"content-length: 5_0\r\n\r\nhello",
    b"POST /livez HTTP/1.1\r\n" + HOST + b"content-length: \r\n\r\nhello",
    b"POST /livez HTTP/1.1\r\n" + HOST + b"content-length: 99999999999999999999\r\n\r\nhello",
    b"POST /livez HTTP/1.1\r\n" + HOST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"GET /livez HTTP/1.1\r\n" + HOST + b"x y: 1\r\n\r\n",
    b"GET /livez HTTP/1.1\r\n" + HOST + b"x : 1\r\n\r\n",
    b"GET /livez HTTP/1.1\r\n" + HOST + b"x\x00: 1\r\n\r\n",
    b"GET /livez HTTP/1.1\r\n" + HOST + b": empty\r\n\r\n",
    b"CONNECT example.org:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


async def test_what_is_not_http_is_a_400_and_the_end_of_the_connection(running: Running) -> None:
    for data in NOT_HTTP:
        response = await send(running, data)
        assert status_of(response) in (400, 405)
        assert b"connection: close" in response.lower()
        assert set(json.loads(response.partition(b"\r\n\r\n")[2])["error"]) == {"message", "type", "param", "code"}
        assert (await running.client.get("/livez")).status_code == 200


BROKEN_CHUNKS = [b"0x10\r\n", b"1_0\r\n", b"\r\n", b"-5\r\n", b"5\r\nhelloX"]


async def test_broken_chunks_are_refused(running: Running) -> None:
    for chunk in BROKEN_CHUNKS:
        head = b"POST /v1/completions HTTP/1.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n"
        assert status_of(await send(running, head + HOST + b"\r\n" + chunk)) == 400


TOO_LARGE = [
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, "uri_too_long"),
    (b"GET /livez HTTP/1.1\r\n" + HOST + b"x: " + b"a" * 40_000 + b"\r\n\r\n", 431, "headers_too_large"),
    (b"GET /livez HTTP/1.1\r\n" + HOST + b"x: 1\r\n" * 150 + b"\r\n", 431, "headers_too_large"),
]


async def test_sizes_are_bounded(running: Running) -> None:
    for data, status, code in TOO_LARGE:
        response = await send(running, data)
        assert status_of(response) == status
        assert json.loads(response.partition(b"\r\n\r\n")[2])["error"]["code"] == code


async def test_a_second_request_hidden_in_a_body_is_only_a_body(running: Running) -> None:
    hidden = b"GET /v1/models HTTP/1.1\r\nhost: test\r\n\r\n"
    head = b"POST /nowhere HTTP/1.1\r\n" + HOST + b"content-length: %d\r\n\r\n" % len(hidden)
    response = await send(running, head + hidden)
    assert response.count(b"HTTP/1.1 ") == 1
    assert status_of(response) == 404


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
    "nonsense": b"nonsense\r\n\r\n",
    "too many headers": b"GET /livez HTTP/1.1\r\n" + HOST + b"x: 1\r\n" * 150 + b"\r\n",
    "a large body": b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"content-length: 200000\r\n\r\n" + b"x" * 200_000,
    "too many": LIVEZ * 100,
}


@pytest.mark.parametrize("rest", HOPELESS.values(), ids=HOPELESS.keys())
async def test_what_cannot_be_pipelined_ends_the_connection_behind_what_can(running: Running, rest: bytes) -> None:
    core = await running.core()
    sending = asyncio.create_task(send(running, completion() + LIVEZ + rest))
    core.emit((await core.next_add()).seq_id, running.ids("hello"), "length")
    response = await sending
    assert response.count(b"HTTP/1.1 200") == response.count(b"HTTP/1.1 ")
    assert 2 <= response.count(b"HTTP/1.1 ") <= 20
    assert b'"content":"hello"' in response
    assert response.endswith(b'{"alive":true}')


async def test_a_pipelined_request_that_never_ends_does_not_cut_the_answer_under_way(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADERS_TIMEOUT_S", 0.05)
    core = await running.core()
    reader, writer = await asyncio.open_unix_connection(running.path)
    writer.write(completion(stream=True) + b"GET /livez HT")
    add = await core.next_add()
    await asyncio.sleep(0.15)  # the server's own timer
    core.emit(add.seq_id, running.ids("hello"), "length")
    response = await asyncio.wait_for(reader.read(), 5)
    assert b"[DONE]" in response
    assert response.count(b"HTTP/1.1 ") == 1
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
    monkeypatch.setattr(server, "HEADERS_TIMEOUT_S", 0.05)
    for data in (b"", b"GET /livez HTTP/1.1\r\nx: "):
        assert status_of(await send(running, data)) == 408


async def test_a_body_that_dawdles_ends_the_connection(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_TIMEOUT_S", 0.05)
    head = b"POST /v1/completions HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 500\r\n"
    reader, writer = await asyncio.open_unix_connection(running.path)
    writer.write(head + HOST + b"\r\n{")
    assert await asyncio.wait_for(reader.read(), 2) == b""
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


async def test_listens_on_tcp_with_a_port_the_system_chooses(start_front: StartFront) -> None:
    with bind("127.0.0.1:0") as listener:
        assert listener.getsockname()[1] > 0
    with bind("[::1]:0") as listener:
        assert listener.family == socket.AF_INET6


@pytest.mark.parametrize("listen", ["nonsense", "host:port", "256.1.1.1:1", "unix:/nowhere/at/all.sock"])
def test_an_address_that_cannot_be_bound_is_a_configuration_error(listen: str) -> None:
    with pytest.raises(EngineConfigError, match="listen"):
        bind(listen)


def test_a_socket_left_by_a_killed_process_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    bind(f"unix:{path}").close()
    with bind(f"unix:{path}"), pytest.raises(EngineConfigError, match="another process listens there"):
        bind(f"unix:{path}")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(EngineConfigError):
        bind(f"unix:{tmp_path / 'file'}")
    assert (tmp_path / "file").read_text() == "precious"


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
    "preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00", 400),
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
