"""Requests by a forward proxy: absolute form for http, a tunnel for https; its password is shown nowhere."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from gateway.app.connections.upstream_clients import open_upstream
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.errors import ConnectError, ConnectTimeout
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from gateway.upstreams.proxy import Proxy, ProxyError, environment_proxy
from gateway.upstreams.resolver import Resolver
from gateway.upstreams.tls import client_context
from tests.gateway.authority import Authority
from tests.gateway.upstreams.conftest import FakeClock
from tests.gateway.upstreams.scripted import ScriptedUpstream, answering, plain

TIMEOUTS = ExchangeTimeouts(connect_s=5.0, total_s=5.0)
REQUEST = UpstreamRequest(b"POST", b"/chat", ((b"x-a", b"b"),), b"{}")
BASIC = b"proxy-authorization: Basic bWU6aHVudGVyMg=="


@dataclass
class ScriptedProxy:
    """Answers CONNECT with `answer`, and joins the client to `port` when that is a 200; else answers by itself."""

    port: int = 0
    answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
    heads: list[bytes] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        await self.serve(reader, writer)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            if not head.startswith(b"CONNECT"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nproxy")
                await reader.read()
                return
            writer.write(self.answer)
            if b" 200 " not in self.answer:
                return
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                await asyncio.gather(_copy(reader, upstream_writer), _copy(upstream_reader, writer))
            finally:
                upstream_writer.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client is gone
        finally:
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
    writer.close()


@asynccontextmanager
async def listening(proxy: ScriptedProxy) -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Proxy.parse(f"http://me:hunter2@proxy.example:{port}")
    finally:
        server.close()
        await asyncio.wait_for(asyncio.gather(*proxy.tasks), 5)


def client_of(url: str, proxy: Proxy, context: ssl.SSLContext | None = None) -> UpstreamClient:
    resolver = Resolver(clock=FakeClock(), lookup=lambda host: {"proxy.example": ["127.0.0.1"]}[host])
    return open_upstream(Target.parse(url), limits=PoolLimits(), ssl=context, proxy=proxy, resolver=resolver)


async def test_http_goes_to_the_proxy_in_absolute_form() -> None:
    scripted = ScriptedProxy()
    async with listening(scripted) as proxy:
        client = client_of("http://api.example/base", proxy)
        async with await client.send(REQUEST, TIMEOUTS) as response:
            assert await response.read(100) == b"proxy"
        assert scripted.heads[0].startswith(b"POST http://api.example/base/chat HTTP/1.1\r\nhost: api.example\r\n")
        assert BASIC in scripted.heads[0]
        await client.aclose()


async def test_https_goes_through_a_tunnel_in_which_the_server_is_verified_and_the_proxy_sees_nothing(
    authority: Authority,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.certificate("good"))
    async with ScriptedUpstream(answering(plain(b"secret")), None, context) as upstream:
        scripted = ScriptedProxy(port=upstream.port)
        async with listening(scripted) as proxy:
            client = client_of("https://localhost:444/v1", proxy, client_context(authority.ca_file))
            for reused in (False, True):
                async with await client.send(REQUEST, TIMEOUTS) as response:
                    assert (response.reused, await response.read(100)) == (reused, b"secret")
            (head,) = scripted.heads
            assert head.startswith(b"CONNECT localhost:444 HTTP/1.1\r\nhost: localhost:444\r\n")
            assert BASIC in head
            assert b"x-a" not in head
            assert all(b"hunter2" not in repr(request).encode() for request in upstream.requests)
            await client.aclose()


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "status 407; it needs other credentials"),
        (b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n", "refused CONNECT with status 403"),
        (b"SSH-2.0-x\r\n\r\n", "does not speak HTTP"),
        (b"", "gave no answer to CONNECT"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 20_000, "gave no answer to CONNECT"),
    ],
)
async def test_a_proxy_that_refuses_is_named_without_its_password(answer: bytes, reported: str) -> None:
    async with listening(ScriptedProxy(answer=answer)) as proxy:
        client = client_of("https://api.example", proxy, client_context())
        with pytest.raises(ConnectError) as caught:
            await client.send(REQUEST, TIMEOUTS)
        assert reported in str(caught.value)
        assert "hunter2" not in str(caught.value) + repr(proxy) + repr(client)
        client.check_integrity()
        await client.aclose()


async def test_a_silent_proxy_is_left_in_time() -> None:
    left = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        left.set()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    proxy = Proxy.parse(f"http://proxy.example:{server.sockets[0].getsockname()[1]}")
    client = client_of("https://api.example", proxy, client_context())
    with pytest.raises(ConnectTimeout):
        await client.send(REQUEST, ExchangeTimeouts(connect_s=0.1))
    assert client.snapshot().num_connecting == 0
    await client.aclose()
    await asyncio.wait_for(left.wait(), 5)  # the connection was closed, too
    server.close()


PROXIES = {"HTTPS_PROXY": "http://secure:1", "HTTP_PROXY": "http://open:2"}


@pytest.mark.parametrize(
    ("url", "environment", "found"),
    [
        ("https://api.example", PROXIES, "http://secure:1"),
        ("http://api.example", PROXIES, "http://open:2"),
        ("https://api.example", {"HTTPS_PROXY": "proxy"}, "http://proxy:80"),
        ("https://api.example", {**PROXIES, "https_proxy": "http://lower:3"}, "http://lower:3"),
        ("https://api.example", {}, "None"),
        ("unix:/a.sock", PROXIES, "None"),
        ("http://localhost:8000", PROXIES, "None"),
        ("http://127.0.0.1:8000", PROXIES, "None"),
        ("http://[::1]:8000", PROXIES, "None"),
        *(
            ("https://api.example", {**PROXIES, "NO_PROXY": text}, found)
            for text, found in (
                ("*", "None"),
                ("api.example", "None"),
                ("example", "None"),
                (".example", "None"),
                ("*.example", "None"),
                ("other, API.example:443", "None"),
                ("api.example:8443", "http://secure:1"),
                ("pi.example", "http://secure:1"),
                ("", "http://secure:1"),
            )
        ),
        ("http://10.1.2.3", {**PROXIES, "NO_PROXY": "10.0.0.0/8"}, "None"),
        ("http://10.1.2.3", {**PROXIES, "NO_PROXY": "11.0.0.0/8"}, "http://open:2"),
        ("http://10.1.2.3:8", {**PROXIES, "no_proxy": "10.1.2.3"}, "None"),
    ],
)
def test_the_environment_names_the_proxy_and_what_is_reached_without_it(
    url: str, environment: Mapping[str, str], found: str
) -> None:
    assert str(environment_proxy(Target.parse(url), environment)) == found


@pytest.mark.parametrize("url", ["https://me:hunter2@p", "socks5://me:hunter2@p", "http://me:hunter2@", "http://p:x"])
def test_a_bad_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ProxyError) as caught:
        Proxy.parse(url)
    assert "hunter2" not in str(caught.value)
