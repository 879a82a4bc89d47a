"""The two servers that speak HTTP to clients, the gateway's and the engine's, behind one face."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import uvloop

from engine.frontend.http.server import DrainingServer, bind, server_config
from gateway.http.limits import EdgeLimits
from gateway.http.server import Listener, Server
from gateway.timeline import RequestIds
from tests.gateway.http.conftest import Handler, RawClient, RecordingApp, get

SERVERS = ("gateway", "engine")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that runs in production: its transports are part of what is tested."""
    return {"uvloop": uvloop.new_event_loop}


@dataclass
class Served:
    """A running server of either kind with one application behind it."""

    kind: str
    host: str
    port: int
    app: RecordingApp

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[RawClient]:
        """A fresh connection."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            yield RawClient(reader, writer)
        finally:
            writer.transport.abort()

    async def is_serving(self) -> bool:
        """Whether a good request on a fresh connection is answered."""
        async with self.connect() as client:
            return (await client.call(get("/good"))).status == 200


StartServer = Callable[..., Awaitable[Served]]


@pytest.fixture(params=SERVERS)
async def start_server(request: pytest.FixtureRequest) -> AsyncIterator[StartServer]:
    """Starts servers of one kind, and closes them after the test."""
    closing: list[Callable[[], Awaitable[None]]] = []

    async def start(handler: Handler | None = None) -> Served:
        app = RecordingApp(handler)
        starting = _gateway if request.param == "gateway" else _engine
        port, close = await starting(app)
        closing.append(close)
        return Served(request.param, "127.0.0.1", port, app)

    yield start
    for close in closing:
        await close()


async def _gateway(app: RecordingApp) -> tuple[int, Callable[[], Awaitable[None]]]:
    listener = Listener(name="public", address="127.0.0.1:0", app=app, limits=EdgeLimits())
    server = Server([listener], new_request_id=RequestIds(random.Random(7)).next)
    await server.start()
    return int(server.addresses["public"][0].rpartition(":")[2]), server.close


async def _engine(app: RecordingApp) -> tuple[int, Callable[[], Awaitable[None]]]:
    listening = bind("127.0.0.1:0")
    server = DrainingServer(server_config(app), on_signal=lambda: None)
    serving = asyncio.create_task(server.serve([listening]))
    while not server.started:
        await asyncio.sleep(0.001)

    async def close() -> None:
        server.stop()
        await serving

    return listening.getsockname()[1], close
