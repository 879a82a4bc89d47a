"""Every kind of store, for the contract that all of them keep."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.app.connections.store_opening import open_store
from gateway.store.address import parse_store
from gateway.store.base import Store
from tests.gateway.store.redis_server import ClusterSet, RedisServer, SentinelSet

KINDS = ("embedded", "redis", "sentinel", "cluster")


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis for all tests that leave it as they found it."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def sentinel_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelSet]:
    """A primary behind Sentinels."""
    servers = SentinelSet(tmp_path_factory.mktemp("sentinel"))
    try:
        yield servers.start()
    finally:
        servers.kill()


@pytest.fixture(scope="session")
def cluster_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSet]:
    """A Cluster."""
    servers = ClusterSet(tmp_path_factory.mktemp("cluster"))
    try:
        yield servers.start()
    finally:
        servers.kill()


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """An open store of each kind."""
    found = open_at(_url(request, tmp_path))
    await found.ping()
    yield found
    await found.aclose()


@pytest.fixture
def space() -> str:
    """A space that no other test uses."""
    return f"test.{uuid4().hex}"


def open_at(url: str, *, timeout_s: float = 1.0) -> Store:
    """The store that a gateway with this setting would use."""
    return open_store(parse_store(url), timeout_s=timeout_s, clock=time.monotonic, wall=time.time)


def _url(request: pytest.FixtureRequest, folder: Path) -> str:
    kind: str = request.param
    if kind == "embedded":
        return f"embedded:{folder / 'store.sqlite3'}"
    servers = {"redis": "redis_server", "sentinel": "sentinel_set", "cluster": "cluster_set"}
    url: str = request.getfixturevalue(servers[kind]).url
    return url
