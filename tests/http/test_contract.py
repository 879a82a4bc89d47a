"""HTTP as both servers speak it: every vector is put to the gateway's protocol and to the engine's."""

from __future__ import annotations

import asyncio
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gateway.http.asgi import Receive, Scope, Send
from tests.gateway.http.conftest import get, post
from tests.http.conftest import Served, StartServer
from tests.http.vectors import (
    BAD_CHUNKS,
    CHUNKED_HEAD,
    FRAMING,
    GET_HEAD,
    HEADERS,
    HOSTS,
    HTTP2,
    POST_HEAD,
    REQUEST_LINES,
    SMUGGLED,
    host_request,
)

HEADS = FRAMING | HEADERS | HOSTS | REQUEST_LINES


PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("name", ["uvicorn", "starlette"])
def test_the_range_that_is_requested_has_an_end_and_the_installed_version_is_in_it(name: str) -> None:
    """Both protocols are subclasses of what uvicorn calls its own; another minor version may differ."""
    listed = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    (wanted,) = (found for found in map(Requirement, listed) if found.name == name)
    assert any(each.operator == "<" for each in wanted.specifier)
    assert wanted.specifier.contains(version(name))


def named(vectors: dict[str, bytes]) -> list[object]:
    """Parameters with the vectors' names."""
    return [pytest.param(data, id=name) for name, data in vectors.items()]


async def assert_refused(served: Served, data: bytes, status: int, code: str) -> None:
    """One answer in the envelope, a closed socket, nothing for the application, and the next client is served."""
    async with served.connect() as client:
        reply = await client.call(data)
        assert (reply.status, reply.error["code"]) == (status, code)
        assert reply.error["type"] == "invalid_request_error"
        assert reply.error.keys() == {"message", "type", "param", "code"}
        assert reply.headers["connection"] == "close"
        assert reply.headers["x-request-id"]
        assert reply.headers.get("x-penstock-error-code") == (code if served.kind == "gateway" else None)
        assert "server" not in reply.headers
        assert await client.rest() == b""
    assert await served.is_serving()
    assert served.app.seen == [("GET", "/good", b"")]


@pytest.mark.parametrize("data", named(HEADS))
async def test_a_malformed_head_gets_400_and_a_closed_socket(start_server: StartServer, data: bytes) -> None:
    served = await start_server()
    await assert_refused(served, data + SMUGGLED, 400, "invalid_request")
    assert served.app.num_started == 1


async def test_a_client_that_speaks_http_2_gets_an_orderly_goaway(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    served = await start_server()
    for _ in range(2):
        async with served.connect() as client:
            await client.send(HTTP2)
            frames = await client.rest()
        settings, goaway = frames[:9], frames[9:]
        assert settings == b"\0\0\0\x04\0\0\0\0\0"
        assert int.from_bytes(goaway[:3], "big") == len(goaway) - 9
        assert goaway[3:9] == b"\x07\0\0\0\0\0"
        assert goaway[9:17] == b"\0\0\0\0\0\0\0\x0d"  # no stream was served, HTTP/1.1 is required
        assert b"use HTTP/1.1" in goaway[17:]
    assert await served.is_serving()
    logged = [record for record in caplog.records if "speaks HTTP/2" in record.message]
    assert len(logged) <= 1 if served.kind == "engine" else len(logged) == 1  # an engine logs it once in its life


async def test_http_2_behind_a_request_is_a_malformed_request(start_server: StartServer) -> None:
    served = await start_server()
    async with served.connect() as client:
        assert (await client.call(get("/good"))).status == 200
        assert (await client.call(HTTP2)).status == 400
        assert await client.rest() == b""


@pytest.mark.parametrize("body", named(BAD_CHUNKS))
async def test_a_malformed_chunk_gets_400_and_its_request_never_completes(
    start_server: StartServer, body: bytes
) -> None:
    await assert_refused(await start_server(), CHUNKED_HEAD + body + SMUGGLED, 400, "invalid_request")


@pytest.mark.parametrize("name", ["space before the colon", "folded header", "NUL in a name", "bare CR in a value"])
async def test_a_fault_is_found_however_the_bytes_are_cut(start_server: StartServer, name: str) -> None:
    served = await start_server()
    async with served.connect() as client:
        for byte in HEADERS[name]:
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        assert (await client.reply()).status == 400
        assert await client.rest() == b""
    assert served.app.num_started == 0


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "QUERY"])
async def test_methods_that_are_not_served_get_405_with_allow(start_server: StartServer, method: str) -> None:
    served = await start_server()
    target = "edge.test:443" if method == "CONNECT" else "/bad"
    async with served.connect() as client:
        reply = await client.call(f"{method} {target} HTTP/1.1\r\nHost: edge.test:443\r\n\r\n".encode() + SMUGGLED)
        assert (reply.status, reply.error["code"]) == (405, "method_not_allowed")
        assert "POST" in reply.headers["allow"]
        assert await client.rest() == b""
    assert served.app.num_started == 0


LARGE = {
    "URI": (get("/" + "a" * 8192), 414, "uri_too_long"),
    "unfinished URI": (b"GET /" + b"a" * 8192, 414, "uri_too_long"),
    "one header": (get("/", b"X: " + b"a" * 33_000), 431, "headers_too_large"),
    "one name": (get("/", b"x" * 33_000 + b": a"), 431, "headers_too_large"),
    "many headers": (get("/", *[b"X: %b" % (b"a" * 1000)] * 40), 431, "headers_too_large"),
    "many fields": (get("/", *[b"X: 1"] * 101), 431, "headers_too_large"),
    "many trailers": (CHUNKED_HEAD + b"0\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431, "headers_too_large"),
    "expectation": (get("/", b"Expect: a-miracle"), 417, "invalid_request"),
}


@pytest.mark.parametrize(("data", "status", "code"), LARGE.values(), ids=LARGE.keys())
async def test_what_is_too_large_or_expects_too_much_has_its_status(
    start_server: StartServer, data: bytes, status: int, code: str
) -> None:
    await assert_refused(await start_server(), data, status, code)


async def test_an_endless_header_is_refused_before_it_ends(start_server: StartServer) -> None:
    served = await start_server()
    async with served.connect() as client:
        await client.send(GET_HEAD + b"X-Endless: ")
        for _ in range(40):
            await client.send(b"a" * 1000)
            await asyncio.sleep(0)
        assert (await client.reply()).status == 431
    assert served.app.num_started == 0


async def test_chunk_framing_that_outweighs_its_body_is_cut_off(start_server: StartServer) -> None:
    served = await start_server()
    async with served.connect() as client:
        await client.send(CHUNKED_HEAD)
        reply = asyncio.ensure_future(client.reply())
        for _ in range(100):
            client.writer.write(b"1;" + b"a" * 1000 + b"\r\na\r\n")
            await asyncio.sleep(0.001)
        assert (await reply).status == 400
        assert await client.rest() == b""
    assert served.app.seen == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "br", "gzip, gzip", "x-unknown"])
async def test_compressed_bodies_get_415_before_they_are_read(start_server: StartServer, encoding: str) -> None:
    head = f"POST /bad HTTP/1.1\r\nHost: edge.test\r\nContent-Encoding: {encoding}\r\nContent-Length: 1000\r\n\r\n"
    await assert_refused(await start_server(), head.encode(), 415, "unsupported_media_type")


UNUSUAL = {
    "an empty line first": b"\r\n" + GET_HEAD + b"\r\n",
    "white space behind a length": POST_HEAD + b"Content-Length: 5 \t\r\n\r\nabcde",
    "leading zeros": POST_HEAD + b"Content-Length: 005\r\n\r\nabcde",
    "an extension and a trailer": POST_HEAD
    + b"transfer-ENCODING:\tChunked\r\n\r\n5;name=value\r\nabcde\r\n0\r\nX-Trailer: y\r\n\r\n",
    "identity": POST_HEAD + b"Content-Encoding: identity\r\nContent-Length: 5\r\n\r\nabcde",
    "an absolute target": host_request(b"Host: Edge.Test:80", target=b"http://edge.test:80/bad?x"),
    "an IPv6 host": host_request(b"Host: [::1]:8080"),
    "UTF-8 in a value": GET_HEAD + b"X-Text: gr\xc3\xbc\xc3\x9fe\r\n\r\n",
    "the server itself": b"OPTIONS * HTTP/1.1\r\nHost: edge.test\r\n\r\n",
    "HTTP/1.0 without a host": b"GET /bad HTTP/1.0\r\n\r\n",
}


@pytest.mark.parametrize("data", named(UNUSUAL))
async def test_unusual_but_correct_requests_are_served(start_server: StartServer, data: bytes) -> None:
    served = await start_server()
    async with served.connect() as client:
        assert (await client.call(data)).status == 200
    ((_, _, body),) = served.app.seen
    assert body == (b"abcde" if data.startswith(b"POST") else b"")


async def test_trailers_do_not_become_headers(start_server: StartServer) -> None:
    names: list[bytes] = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        while message.get("more_body"):
            message = await receive()
        names.extend(name for name, _ in scope["headers"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    served = await start_server(handler)
    async with served.connect() as client:
        await client.send(CHUNKED_HEAD + b"0\r\nAuthorization: Bearer stolen\r\n\r\n")
        await client.reader.readuntil(b"\r\n\r\n")
    assert b"authorization" not in names
    assert b"host" in names


async def test_an_offer_of_another_protocol_is_ignored_and_the_body_stays(start_server: StartServer) -> None:
    served = await start_server()
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    async with served.connect() as client:
        reply = await client.call(POST_HEAD + offer + b"Content-Length: 5\r\n\r\nabcde" + GET_HEAD + b"\r\n")
        assert (reply.status, reply.body) == (200, b"good:abcde")
        assert (await client.reply()).status == 200
    assert served.app.seen == [("POST", "/bad", b"abcde"), ("GET", "/bad", b"")]


async def test_a_request_hidden_in_a_body_is_body(start_server: StartServer) -> None:
    served = await start_server()
    hidden = get("/hidden")
    async with served.connect() as client:
        assert (await client.call(post(hidden))).body == b"good:" + hidden
        assert (await client.call(get("/next"))).status == 200
    assert [path for _, path, _ in served.app.seen] == ["/echo", "/next"]


async def test_pipelined_requests_are_answered_in_order(start_server: StartServer) -> None:
    served = await start_server()
    async with served.connect() as client:
        await client.send(post(b"1") + post(b"2"))
        await client.send(post(b"3") + post(b"4"))
        assert [(await client.reply()).body for _ in range(4)] == [b"good:1", b"good:2", b"good:3", b"good:4"]


BEHIND = {
    "nonsense": b"BAD\r\n\r\n",
    "a bad header": GET_HEAD + b"A : b\r\n\r\n",
    "a bad chunk": CHUNKED_HEAD + b"zz\r\n",
}


@pytest.mark.parametrize("bad", named(BEHIND))
async def test_a_fault_behind_a_good_request_is_answered_after_it(start_server: StartServer, bad: bytes) -> None:
    served = await start_server()
    async with served.connect() as client:
        await client.send(post(b"1") + bad)
        assert (await client.reply()).body == b"good:1"
        assert (await client.reply()).status == 400
        assert await client.rest() == b""
    assert served.app.seen == [("POST", "/echo", b"1")]


async def test_requests_behind_connection_close_are_ignored(start_server: StartServer) -> None:
    served = await start_server()
    async with served.connect() as client:
        await client.send(get("/last", b"Connection: close") + get("/never"))
        assert (await client.reply()).headers["connection"] == "close"
        assert await client.rest() == b""
    assert [path for _, path, _ in served.app.seen] == ["/last"]


async def test_empty_lines_between_requests_are_skipped(start_server: StartServer) -> None:
    served = await start_server()
    async with served.connect() as client:
        await client.send(b"\r\n\r\n")
        assert (await client.call(get("/"))).status == 200
        await client.send(b"\r\n")
        assert (await client.call(get("/"))).status == 200


async def test_continue_is_sent_when_the_application_requests_the_body(start_server: StartServer) -> None:
    served = await start_server()
    head, body = post(b"abcde", b"Expect: 100-continue")[:-5], b"abcde"
    async with served.connect() as client:
        assert (await client.call(head)).status == 100
        assert (await client.call(body)).body == b"good:abcde"


async def test_a_head_answer_has_no_body(start_server: StartServer) -> None:
    served = await start_server()
    async with served.connect() as client:
        await client.send(get("/").replace(b"GET", b"HEAD") + get("/last", b"Connection: close"))
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b"content-length: 5\r\n" in head.lower()
        assert (await client.reply()).body == b"good:"


@pytest.mark.parametrize("is_half", [True, False])
async def test_a_client_that_leaves_is_reported_to_the_application(start_server: StartServer, is_half: bool) -> None:
    gone = asyncio.Event()

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    served = await start_server(handler)
    async with served.connect() as client:
        await client.send(get("/"))
        while not served.app.num_started:
            await asyncio.sleep(0.001)
        if is_half:
            client.writer.write_eof()
        else:
            client.writer.transport.abort()
        await asyncio.wait_for(gone.wait(), 5)
