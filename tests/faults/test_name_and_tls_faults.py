"""Names that do not resolve or change, and servers that cannot prove who they are."""

from __future__ import annotations

import asyncio
import io
import ssl
import threading
from pathlib import Path

import pytest

from gateway.app.app import Gateway
from gateway.app.connections.upstream_clients import open_upstream
from gateway.config.sources import config_of
from gateway.upstreams.http1.errors import ConnectTimeout
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from gateway.upstreams.resolver import Resolver
from tests.gateway.authority import make_authority
from tests.gateway.scripted import ScriptedUpstream
from tests.gateway.stack import Stack, chat
from tests.support.fault_proxy import FaultProxy

REQUEST = UpstreamRequest(b"POST", b"/v1/chat/completions", [], b"{}")


class ManualClock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_name_that_fails_keeps_its_last_address_and_one_that_changes_is_followed(tmp_path: Path) -> None:
    """Fault row 28: the cached answer until its time is over, the last one while the name server is down."""
    clock, answers = ManualClock(), ["127.0.0.1"]

    def lookup(host: str) -> list[str]:
        if not answers:
            raise OSError("the name server is down")
        return list(answers)

    resolver = Resolver(clock=clock, ttl_s=30.0, lookup=lookup)
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine, FaultProxy(engine.path) as proxy:
        limits = PoolLimits(idle_s=0.001)  # every request connects
        target = Target.parse(f"http://engine.test:{proxy.port}")
        client = open_upstream(target, limits=limits, clock=clock, resolver=resolver)

        async def answered() -> int:
            clock.now += 0.01
            async with await client.send(REQUEST, ExchangeTimeouts(connect_s=2.0)) as response:
                await response.read(100_000)
            return response.status

        assert await answered() == 200
        answers.clear()
        clock.now = 20.0
        assert await answered() == 200  # not called again yet
        clock.now = 40.0
        assert await answered() == 200  # called, down: the last answer still serves
        answers.append("127.0.0.2")
        clock.now = 80.0
        assert await resolver.resolve("engine.test") == ("127.0.0.2",)
        await client.aclose()
    resolver.close()


async def test_a_hanging_name_server_takes_two_threads_and_no_more() -> None:
    """Fault row 28: bounded resolver threads; each request ends at its own connect limit."""
    clock, release, names = ManualClock(), threading.Event(), []

    def lookup(host: str) -> list[str]:
        names.append(host)
        release.wait(5)
        return ["127.0.0.1"]

    resolver = Resolver(clock=clock, max_threads=2, lookup=lookup)
    clients = [
        open_upstream(Target.parse(f"http://host{n}.test:9"), limits=PoolLimits(), resolver=resolver) for n in range(10)
    ]
    try:
        results = await asyncio.gather(
            *(client.send(REQUEST, ExchangeTimeouts(connect_s=0.1)) for client in clients), return_exceptions=True
        )
        assert {type(result) for result in results} == {ConnectTimeout}
        assert len(names) == 2
        for client in clients:
            client.check_integrity()
            assert client.snapshot().num_connecting == 0
    finally:
        release.set()
        for client in clients:
            await client.aclose()
        resolver.close()


@pytest.mark.parametrize("case", ["expired", "wrong name", "unknown authority"])
async def test_a_server_that_cannot_prove_its_name_is_a_502_and_sees_no_request(tmp_path: Path, case: str) -> None:
    """Fault row 29: a clear line in the log, no address in the answer, no downgrade to plain text."""
    authority = make_authority(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    certificate = {
        "expired": lambda: authority.certificate("expired", days=-1),
        "wrong name": lambda: authority.certificate("wrong", dns="other.example"),
        "unknown authority": lambda: make_authority(other).certificate("stranger"),
    }[case]()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    async with ScriptedUpstream(tmp_path / "unused.sock", tls=tls) as hosted:
        (tmp_path / "policy.yaml").write_text(
            "schema_version: 1\ndeployments:\n"
            f'  - {{id: hosted, url: "https://localhost:{hosted.port}/v1", model: tiny, '
            f'tls: {{ca_file: "{authority.ca_file}"}}}}\n'
        )
        config = config_of(
            {
                "public.listen": f"unix:{tmp_path}/public.sock",
                "admin.listen": f"unix:{tmp_path}/admin.sock",
                "policy.document": tmp_path / "policy.yaml",
                "process.runtime_dir": tmp_path,
            }
        )
        log = io.BytesIO()
        gateway = Gateway(config, log_stream=log)
        await gateway.start()
        try:
            stack = Stack(gateway, hosted, hosted, log)
            gateway._current().deployments["hosted"].is_ready = True
            reply = await stack.call(chat())

            assert (reply.status, reply.error["code"]) == (502, "upstream_error")
            assert str(hosted.port) not in reply.error["message"]
            await stack.until_idle()
            assert "TLS failed" in stack.lines()[0]["detail"]
            assert hosted.received == hosted.probes == []
            stack.check_integrity()
        finally:
            await gateway.stop(drain_timeout_s=0)
