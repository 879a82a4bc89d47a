"""Connections by name: address after address, within one limit of time, and an error that names the target."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.connector import Connector
from gateway.upstreams.http1.errors import (
    ConnectError,
    ConnectTimeout,
    ExchangePhase,
    ResolveError,
    TlsError,
    TotalTimeout,
)
from gateway.upstreams.http1.request import ExchangeTimeouts
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import ConnectionPool, PoolLimits
from gateway.upstreams.resolver import Resolver
from tests.gateway.upstreams.conftest import FakeClock
from tests.gateway.upstreams.scripted import POST, ScriptedUpstream, answering, plain


def free_port() -> int:
    with socket.socket() as raw:
        raw.bind(("127.0.0.1", 0))
        port: int = raw.getsockname()[1]
        return port


def client(url: str, *addresses: str) -> UpstreamClient:
    target, clock = Target.parse(url), FakeClock()
    resolver = Resolver(clock=clock, lookup=lambda host: list(addresses))
    return UpstreamClient(target, ConnectionPool(str(target), PoolLimits(), clock), clock=clock, resolver=resolver)


async def test_a_socket_that_is_not_there_is_named(tmp_path: Path) -> None:
    opened = client(f"unix:{tmp_path}/none.sock")
    with pytest.raises(ConnectError, match=r"none\.sock: No such file"):
        await opened.warm(1)
    await opened.aclose()


async def test_nobody_listening_is_a_connect_error_and_nothing_was_sent() -> None:
    opened = client(f"http://engine:{free_port()}", "127.0.0.1", "127.0.0.2")
    with pytest.raises(ConnectError) as caught:
        await opened.warm(1)
    assert caught.value.phase is ExchangePhase.CONNECT
    await opened.aclose()


async def test_a_name_without_an_address_is_its_own_error() -> None:
    opened = client("http://engine:80")
    with pytest.raises(ResolveError):
        await opened.warm(1)
    await opened.aclose()


async def test_the_next_address_is_tried_where_one_refuses() -> None:
    async with ScriptedUpstream(answering(plain(b"a")), None) as upstream:
        opened = client(f"http://engine:{upstream.port}", "127.0.0.9", "127.0.0.1")
        await opened.warm(1)
        assert opened.snapshot().num_idle == 1
        await opened.aclose()


async def test_a_server_that_speaks_no_tls_is_never_spoken_to_in_plain_text() -> None:
    async def shut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(shut, "127.0.0.1", 0)
    opened = client(f"https://engine:{server.sockets[0].getsockname()[1]}", "127.0.0.1")
    with pytest.raises(TlsError, match="TLS failed"):
        await opened.warm(1)
    await opened.aclose()
    server.close()


@pytest.mark.parametrize(
    ("timeouts", "kind"),
    [
        (ExchangeTimeouts(connect_s=0.01), ConnectTimeout),
        (ExchangeTimeouts(connect_s=5.0, total_s=0.01), TotalTimeout),
    ],
)
async def test_the_limit_that_passed_is_the_error(timeouts: ExchangeTimeouts, kind: type[Exception]) -> None:
    held = asyncio.Event()

    class Slow(Resolver):
        async def resolve(self, host: str) -> tuple[str, ...]:
            await held.wait()
            return ("127.0.0.1",)

    target = Target.parse("http://engine:80")
    opened = UpstreamClient(
        target, ConnectionPool(str(target), PoolLimits(), FakeClock()), resolver=Slow(clock=FakeClock())
    )
    with pytest.raises(kind, match=r"no connection within 0\.01 s"):
        await opened.send(POST, timeouts)
    await opened.aclose()


def test_a_context_that_verifies_nobody_is_refused() -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with pytest.raises(ValueError, match="verif"):
        Connector(Target.parse("https://engine"), Resolver(clock=FakeClock()), context)
