"""Bytes that are not a request: each gets its status and a closed socket, and nothing of it reaches the application."""

from __future__ import annotations

import pytest

from gateway.http.asgi import Receive, Scope, Send
from tests.gateway.http.conftest import StartEdge

# Hidden behind every vector: a server that misjudges where the bad request ends would serve it.
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: edge.test\r\n\r\n"

_POST = b"POST /bad HTTP/1.1\r\nHost: edge.test\r\n"
_GET = b"GET /bad HTTP/1.1\r\nHost: edge.test\r\n"
_CHUNKED = _POST + b"Transfer-Encoding: chunked\r\n\r\n"


def _length(value: bytes) -> bytes:
    return _POST + b"Content-Length:" + value + b"\r\n\r\nabcde"


def _encoding(value: bytes, version: bytes = b"1.1") -> bytes:
    head = b"POST /bad HTTP/" + version + b"\r\nHost: edge.test\r\nTransfer-Encoding:" + value
    return head + b"\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"


def _host(*lines: bytes, target: bytes = b"/bad") -> bytes:
    return b"\r\n".join([b"GET " + target + b" HTTP/1.1", *lines, b"", b""])


FRAMING = {
    "content-length and transfer-encoding": _POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "transfer-encoding and content-length": _POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two equal content-lengths": _POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    "two different content-lengths": _POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    "content-length list": _length(b" 5, 5"),
    "content-length +5": _length(b" +5"),
    "content-length -5": _length(b" -5"),
    "content-length 5_0": _length(b" 5_0"),
    "content-length 0x5": _length(b" 0x5"),
    "content-length empty": _length(b""),
    "content-length blank": _length(b"  \t"),
    "content-length 20 digits": _length(b" " + b"9" * 20),
    "content-length 19 digits": _length(b" 18446744073709551616"),
    "content-length after no-break space": _length(b" \xa05"),
    "content-length before next-line": _length(b" 5\x85"),
    "content-length before vertical tab": _length(b" 5\x0b"),
    "content-length two words": _length(b" 5 5"),
    "transfer-encoding twice in a list": _encoding(b" chunked, chunked"),
    "transfer-encoding behind a comma": _encoding(b" ,chunked"),
    "transfer-encoding before a comma": _encoding(b" chunked,"),
    "transfer-encoding xchunked": _encoding(b" xchunked"),
    "transfer-encoding chunkedx": _encoding(b" chunkedx"),
    "transfer-encoding quoted": _encoding(b' "chunked"'),
    "transfer-encoding behind a vertical tab": _encoding(b" \x0bchunked"),
    "transfer-encoding behind a no-break space": _encoding(b" \xa0chunked"),
    "transfer-encoding gzip, chunked": _encoding(b" gzip, chunked"),
    "transfer-encoding identity": _encoding(b" identity"),
    "transfer-encoding empty": _encoding(b""),
    "transfer-encoding twice": _encoding(b" chunked\r\nTransfer-Encoding: chunked"),
    "transfer-encoding twice, second identity": _encoding(b" chunked\r\nTransfer-Encoding: identity"),
    "transfer-encoding in HTTP/1.0": _encoding(b" chunked", version=b"1.0"),
}

HEADERS = {
    "request line ended by a bare LF": b"GET /bad HTTP/1.1\nHost: edge.test\r\n\r\n",
    "all lines ended by bare LFs": b"GET /bad HTTP/1.1\nHost: edge.test\n\n",
    "header ended by a bare LF": _GET + b"A: b\nC: d\r\n\r\n",
    "headers ended by a bare LF": _GET + b"A: b\r\n\n",
    "bare CR in a value": _GET + b"A: b\rc\r\n\r\n",
    "CR CR LF after a value": _GET + b"A: b\r\r\n\r\n",
    "bare CR before a name": _GET + b"\rA: b\r\n\r\n",
    "folded header": _GET + b"A: b\r\n c\r\n\r\n",
    "header folded with a tab": _GET + b"A: b\r\n\tc\r\n\r\n",
    "space before the first header": b"GET /bad HTTP/1.1\r\n Host: edge.test\r\n\r\n",
    "space before the colon": _GET + b"A : b\r\n\r\n",
    "tab before the colon": _GET + b"A\t: b\r\n\r\n",
    "space in a name": _GET + b"A B: c\r\n\r\n",
    "NUL in a name": _GET + b"A\0B: c\r\n\r\n",
    "NUL in a value": _GET + b"A: b\0c\r\n\r\n",
    "control character in a value": _GET + b"A: b\x01c\r\n\r\n",
    "DEL in a value": _GET + b"A: b\x7f\r\n\r\n",
    "non-ASCII name": _GET + b"\xc3\xa9: b\r\n\r\n",
    "no-break space in a name": _GET + b"A\xa0: b\r\n\r\n",
    "empty name": _GET + b": b\r\n\r\n",
    "no colon": _GET + b"Abc\r\n\r\n",
    "parentheses in a name": _GET + b"A(b): c\r\n\r\n",
    "two authorization headers": _GET + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
    "two content-types": _POST + b"Content-Type: application/json\r\nContent-Type: text/plain\r\n\r\n",
    "connection header that names nothing, then a bad one": _GET + b"Connection:\r\nA : b\r\n\r\n",
}

HOSTS = {
    "no host": _host(b"A: b"),
    "empty host": _host(b"Host:"),
    "blank host": _host(b"Host: \t"),
    "two hosts": _host(b"Host: edge.test", b"Host: edge.test"),
    "host with a path": _host(b"Host: edge.test/admin?"),
    "host with user info": _host(b"Host: admin@edge.test"),
    "host with a bad port": _host(b"Host: edge.test:80a"),
    "host with a space": _host(b"Host: edge test"),
    "host list": _host(b"Host: edge.test, other.test"),
    "absolute target of another host": _host(b"Host: edge.test", target=b"http://other.test/bad"),
    "absolute target with user info": _host(b"Host: edge.test", target=b"http://admin@edge.test/bad"),
    "absolute target of another scheme": _host(b"Host: edge.test", target=b"ftp://edge.test/bad"),
}

REQUEST_LINES = {
    "fragment": _host(b"Host: edge.test", target=b"/bad#part"),
    "asterisk that is not for OPTIONS": _host(b"Host: edge.test", target=b"*"),
    "non-ASCII path": _host(b"Host: edge.test", target=b"/b\xc3\xa4d"),
    "path that is not UTF-8": _host(b"Host: edge.test", target=b"/b%e4d"),
    "encoded line break in the path": _host(b"Host: edge.test", target=b"/bad%0d%0aX"),
    "encoded NUL in the path": _host(b"Host: edge.test", target=b"/bad%00"),
    "tab in the target": _host(b"Host: edge.test", target=b"/b\tad"),
    "relative target": _host(b"Host: edge.test", target=b"bad"),
    "HTTP/0.9": b"GET /bad\r\n\r\n",
    "HTTP/1.2": b"GET /bad HTTP/1.2\r\nHost: edge.test\r\n\r\n",
    "HTTP/2.0": b"GET /bad HTTP/2.0\r\nHost: edge.test\r\n\r\n",
    "HTTP/1.10": b"GET /bad HTTP/1.10\r\nHost: edge.test\r\n\r\n",
    "lower-case protocol": b"GET /bad http/1.1\r\nHost: edge.test\r\n\r\n",
    "lower-case method": b"get /bad HTTP/1.1\r\nHost: edge.test\r\n\r\n",
    "unknown method": b"FETCH /bad HTTP/1.1\r\nHost: edge.test\r\n\r\n",
    "WebSocket upgrade": _GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\x04\0\0\0\0\0",
    "TLS client hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "random bytes": bytes(range(128, 256)),
}


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


BAD_CHUNKS = {
    "0x prefix": b"0x10\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n",
    "underscore": b"1_0\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n",
    "empty size": b"\r\nabcde\r\n0\r\n\r\n",
    "negative": b"-5\r\nabcde\r\n0\r\n\r\n",
    "plus sign": b"+5\r\nabcde\r\n0\r\n\r\n",
    "space before the size": b" 5\r\nabcde\r\n0\r\n\r\n",
    "space after the size": b"5 \r\nabcde\r\n0\r\n\r\n",
    "no-break space after the size": b"5\xa0\r\nabcde\r\n0\r\n\r\n",
    "longest valid prefix": b"5g\r\nabcde\r\n0\r\n\r\n",
    "17 digits": b"f" * 17 + b"\r\nabcde",
    "wrong terminator": b"5\r\nabcdeXX0\r\n\r\n",
    "terminator without CR": b"5\r\nabcde\n0\r\n\r\n",
    "terminator without LF": b"5\r\nabcde\r0\r\n\r\n",
    "size ended by a bare LF": b"5\nabcde\r\n0\r\n\r\n",
    "more data than the size": b"5\r\nabcdefgh\r\n0\r\n\r\n",
    "LF in an extension": b"5;a\nb\r\nabcde\r\n0\r\n\r\n",
    "CR in an extension": b"5;a\rb\r\nabcde\r\n0\r\n\r\n",
    "NUL in an extension": b"5;\0\r\nabcde\r\n0\r\n\r\n",
    "last chunk ended by a bare LF": b"0\r\n\n",
    "content-length as a trailer": b"0\r\nContent-Length: 5\r\n\r\n",
    "bad trailer": b"0\r\nA : b\r\n\r\n",
}


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in BAD_CHUNKS.items()])
async def test_a_malformed_chunk_gets_400_and_its_request_never_completes(start_edge: StartEdge, body: bytes) -> None:
    edge = await start_edge()
    async with edge.connect() as client:
        reply = await client.ask(_CHUNKED + body + SMUGGLED)
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
            b"\r\n" + _GET + b"\r\n",
            _POST + b"Content-Length: 5 \t\r\n\r\nabcde",
            _POST + b"Content-Length: 005\r\n\r\nabcde",
            _POST + b"transfer-ENCODING:\tChunked\r\n\r\n5;name=value\r\nabcde\r\n0\r\nX-Trailer: y\r\n\r\n",
            _POST + b"Content-Encoding: identity\r\nContent-Length: 5\r\n\r\nabcde",
            _host(b"Host: Edge.Test:80", target=b"http://edge.test:80/bad?x"),
            _host(b"Host: [::1]:8080"),
            _GET + b"X-Text: gr\xc3\xbc\xc3\x9fe\r\n\r\n",
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
        await client.send(_CHUNKED + b"0\r\nAuthorization: Bearer stolen\r\n\r\n")
        await client.reader.readuntil(b"\r\n\r\n")
    assert b"authorization" not in names
    assert b"host" in names


async def test_an_offer_of_another_protocol_is_ignored_and_the_body_kept(start_edge: StartEdge) -> None:
    edge = await start_edge()
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    async with edge.connect() as client:
        reply = await client.ask(_POST + offer + b"Content-Length: 5\r\n\r\nabcde" + _GET + b"\r\n")
        assert (reply.status, reply.body) == (200, b"good:abcde")
        assert (await client.reply()).status == 200
    assert edge.app.seen == [("POST", "/bad", b"abcde"), ("GET", "/bad", b"")]
