"""Redis behind TLS: verified by the authority that the settings name, and never spoken to without."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from gateway.app.connections.store_opening import open_store
from gateway.store.address import parse_store
from gateway.store.base import Store, StoreUnavailable
from tests.gateway.authority import Authority, make_authority
from tests.gateway.store.redis_server import RedisServer, free_ports


class TlsRedis(RedisServer):
    """A Redis that speaks nothing but TLS on `tls_port`; the plain port is the test's own."""

    def __init__(self, folder: Path, authority: Authority, *, dns: str) -> None:
        certificate, key = authority.certificate(dns, dns=dns)
        (self.tls_port,) = free_ports(1)
        super().__init__(
            folder,
            f"tls-port {self.tls_port}",
            f"tls-cert-file {certificate}",
            f"tls-key-file {key}",
            f"tls-ca-cert-file {authority.ca_file}",
            "tls-auth-clients no",
        )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=["localhost"])
def server(request: pytest.FixtureRequest, tmp_path: Path, authority: Authority) -> Iterator[TlsRedis]:
    found = TlsRedis(tmp_path / "redis", authority, dns=request.param)
    found.start()
    yield found
    found.kill()


def store_at(port: int, ca_file: Path | None) -> Store:
    address = parse_store(f"rediss://localhost:{port}/0", ca_file=ca_file)
    return open_store(address, timeout_s=5.0, clock=time.monotonic, wall=time.time)


async def refused(store: Store) -> None:
    with pytest.raises(StoreUnavailable):
        await store.ping()
    await store.aclose()


async def test_a_store_signed_by_the_named_authority_serves(server: TlsRedis, authority: Authority) -> None:
    store = store_at(server.tls_port, authority.ca_file)
    assert await store.put("space", "key", b"value") == 1
    stored = redis.Redis(port=server.port, socket_timeout=5).dbsize()
    await store.aclose()
    assert stored, "the value lies in the server that was asked"


async def test_a_store_that_the_system_does_not_know_is_never_spoken_to(server: TlsRedis) -> None:
    await refused(store_at(server.tls_port, None))


@pytest.mark.parametrize("server", ["another.example"], indirect=True)
async def test_a_certificate_for_another_name_is_refused(server: TlsRedis, authority: Authority) -> None:
    await refused(store_at(server.tls_port, authority.ca_file))


async def test_a_plain_port_is_not_spoken_to_in_the_clear(server: TlsRedis, authority: Authority) -> None:
    await refused(store_at(server.port, authority.ca_file))


def test_authorities_without_tls_are_a_mistake_that_is_named() -> None:
    with pytest.raises(ValueError, match="rediss"):
        parse_store("redis://localhost/0", ca_file=Path("/ca.pem"))
