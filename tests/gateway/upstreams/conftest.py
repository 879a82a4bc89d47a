"""Both event loops, a scripted upstream on a Unix socket, and a client whose books are checked at the end."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.pool import PoolLimits
from gateway.upstreams.target import Target
from tests.gateway.upstreams.scripted import Script, ScriptedUpstream


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@dataclass
class FakeClock:
    """Time that stands still until told."""

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
            client = UpstreamClient(Target.parse(f"unix:{path}"), limits=limits or PoolLimits(), **options)
            clients.append(client)
            return upstream, client

        yield start
        for client in clients:
            client.check_integrity()
            await client.aclose()
            client.check_integrity()
            assert client.snapshot().num_busy == client.snapshot().num_idle == client.snapshot().num_closing == 0


@dataclass(frozen=True)
class Authority:
    """A certificate authority for one test session and what it signed."""

    folder: Path

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    def certificate(self, name: str, *, dns: str = "localhost", days: int = 2) -> tuple[Path, Path]:
        """(certificate, key) for a server; a negative number of days makes one that is already over."""
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName=DNS:{dns}\n")
        _openssl("req", "-newkey", *_EC, "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={dns}")
        signer = ("-CA", self.ca_file, "-CAkey", self.folder / "ca.key", "-CAcreateserial")
        _openssl("x509", "-req", "-in", request, *signer, "-days", days, "-extfile", extensions, "-out", certificate)
        return certificate, key


_EC = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("ca"))
    key = made.folder / "ca.key"
    constraints = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    subject = ("-subj", "/CN=penstock test authority", "-days", 2)
    _openssl("req", "-x509", "-newkey", *_EC, "-nodes", "-keyout", key, "-out", made.ca_file, *subject, *constraints)
    return made
