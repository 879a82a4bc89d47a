from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.app.connections.upstream_clients import open_upstream
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.errors import ExchangePhase, TlsError, UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from gateway.upstreams.resolver import Resolver
from gateway.upstreams.tls import TlsConfigError, client_context
from tests.gateway.authority import Authority
from tests.gateway.upstreams.conftest import FakeClock
from tests.gateway.upstreams.scripted import NO_TIMEOUTS, POST, ScriptedUpstream, answering, plain


@asynccontextmanager
async def tls_upstream(certificate: tuple[Path, Path]) -> AsyncIterator[ScriptedUpstream]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with ScriptedUpstream(answering(plain(b"secret")), None, context) as upstream:
        yield upstream


def client_for(port: int, ca_file: Path | None, clock: FakeClock) -> UpstreamClient:
    resolver = Resolver(clock=clock, lookup=lambda host: ["127.0.0.1"])
    target = Target.parse(f"https://localhost:{port}")
    return open_upstream(target, limits=PoolLimits(), ssl=client_context(ca_file), resolver=resolver)


async def test_speaks_tls_to_a_server_it_can_verify(authority: Authority, clock: FakeClock) -> None:
    async with tls_upstream(authority.certificate("good")) as upstream:
        client = client_for(upstream.port, authority.ca_file, clock)
        for reused in (False, True):
            async with await client.send(POST, ExchangeTimeouts(connect_s=5.0)) as response:
                assert (response.reused, await response.read(100)) == (reused, b"secret")
        await client.aclose()


@pytest.mark.parametrize("case", ["expired", "wrong name", "unknown authority"])
async def test_a_server_it_cannot_verify_gets_no_request(authority: Authority, clock: FakeClock, case: str) -> None:
    certificate = {
        "expired": authority.certificate("expired", days=-1),
        "wrong name": authority.certificate("other", dns="other.example"),
        "unknown authority": authority.certificate("good"),
    }[case]
    async with tls_upstream(certificate) as upstream:
        client = client_for(upstream.port, None if case == "unknown authority" else authority.ca_file, clock)
        with pytest.raises(TlsError) as caught:
            await client.send(POST, NO_TIMEOUTS)
        assert caught.value.phase is ExchangePhase.CONNECT
        assert upstream.requests == []
        client.check_integrity()
        assert client.snapshot().num_busy == client.snapshot().num_connecting == 0
        await client.aclose()


@pytest.mark.parametrize(("name", "is_trusted"), [("engine.example", True), ("other.example", False)])
async def test_a_member_is_verified_by_the_name_of_its_group(
    authority: Authority, clock: FakeClock, name: str, is_trusted: bool
) -> None:
    async with tls_upstream(authority.certificate("member", dns="engine.example")) as upstream:
        target = replace(Target.parse(f"https://127.0.0.1:{upstream.port}"), tls_name=name)
        client = open_upstream(target, limits=PoolLimits(), ssl=client_context(authority.ca_file), clock=clock)
        if is_trusted:
            async with await client.send(POST, ExchangeTimeouts(connect_s=5.0)) as response:
                assert await response.read(100) == b"secret"
        else:
            with pytest.raises(TlsError):
                await client.send(POST, NO_TIMEOUTS)
        await client.aclose()


async def test_a_plain_server_is_not_spoken_to_in_plain_text(authority: Authority, clock: FakeClock) -> None:
    async with ScriptedUpstream(answering(plain(b"x")), None) as upstream:
        client = client_for(upstream.port, authority.ca_file, clock)
        with pytest.raises(UpstreamError) as caught:
            await client.send(POST, ExchangeTimeouts(connect_s=0.2))
        assert caught.value.phase is ExchangePhase.CONNECT
        assert upstream.requests == []
        await client.aclose()


def test_verification_cannot_be_switched_off() -> None:
    careless = ssl.create_default_context()
    careless.check_hostname = False
    careless.verify_mode = ssl.CERT_NONE
    with pytest.raises(TlsConfigError):
        open_upstream(Target.parse("https://api.example.com"), limits=PoolLimits(), ssl=careless)


def test_a_ca_file_without_certificates_is_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_text("nothing\n")
    with pytest.raises(TlsConfigError, match=r"ca\.pem"):
        client_context(empty)
    with pytest.raises(TlsConfigError):
        client_context(tmp_path / "missing.pem")


def test_a_ca_file_that_is_a_pipe_or_a_device_is_an_error_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(TlsConfigError, match="no regular file"):
            client_context(path)
    with pytest.raises(TlsConfigError, match="directory"):
        client_context(tmp_path)
