"""Both event loops, a scripted upstream on a Unix socket, and a client whose counts are checked at the end."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.app.connections.upstream_clients import open_upstream
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from tests.gateway.authority import Authority, make_authority
from tests.gateway.upstreams.scripted import Script, ScriptedUpstream


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@dataclass
class FakeClock:
    """Time that stands still until advanced."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def socket_dir() -> Iterator[Path]:
    """A directory whose path is short enough for a Unix socket."""
    path = Path(tempfile.mkdtemp(prefix="up"))
    yield path
    shutil.rmtree(path)


Serve = Callable[..., Any]


@pytest.fixture
async def serve(socket_dir: Path) -> AsyncIterator[Serve]:
    """`upstream, client = await serve(script)`; afterwards nothing may be left open on either side."""
    async with AsyncExitStack() as stack:
        clients: list[UpstreamClient] = []

        async def start(
            script: Script, *, limits: PoolLimits | None = None, **options: Any
        ) -> tuple[ScriptedUpstream, UpstreamClient]:
            path = socket_dir / f"{len(clients)}.sock"
            upstream = await stack.enter_async_context(ScriptedUpstream(script, path))
            client = open_upstream(Target.parse(f"unix:{path}"), limits=limits or PoolLimits(), **options)
            clients.append(client)
            return upstream, client

        yield start
        for client in clients:
            client.check_integrity()
            await client.aclose()
            client.check_integrity()
            assert client.snapshot().num_busy == client.snapshot().num_idle == client.snapshot().num_closing == 0


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("ca"))
