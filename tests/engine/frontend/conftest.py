"""A running front with a fake core behind it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from engine.config import FrontConfig
from engine.frontend.core_client.live_core import CoreStarts
from engine.frontend.core_client.queue_guard import QueueLimits
from engine.frontend.core_client.supervisor import Patience
from engine.frontend.run import Front
from tests.engine.frontend.fake_core import FakeCore, FakeCores
from tests.engine.frontend.tiny_model import write_model

PATIENCE = Patience(first_pause_s=0.02, longest_pause_s=0.05, stop_s=0.5)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def tokenizer(model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_dir / "tokenizer.json"))


@dataclass
class Running:
    """A front that serves on a Unix socket, its fake cores, and a client."""

    front: Front
    path: Path
    cores: FakeCores
    client: httpx.AsyncClient
    serving: asyncio.Task[None]
    tokenizer: Tokenizer

    async def core(self) -> FakeCore:
        """The core that was started last, once the front knows that it is ready."""
        core = await self.cores.next()
        await self.until_ready()
        return core

    async def until_ready(self) -> None:
        while (await self.client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.002)

    def ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    async def raw(self, method: str, path: str, body: Any = None, headers: str = "") -> RawConnection:
        """A request over a bare socket."""
        data = b"" if body is None else json.dumps(body).encode()
        reader, writer = await asyncio.open_unix_connection(self.path)
        head = f"{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n{headers}"
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        return RawConnection(reader, writer)


@dataclass
class RawConnection:
    """A client that can leave whenever a test wants."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def read_until(self, mark: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(mark), 5)

    async def read_to_end(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), 5)

    async def leave(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    def reset(self) -> None:
        self.writer.transport.abort()


StartFront = Callable[..., contextlib.AbstractAsyncContextManager[Running]]


@pytest.fixture
def start_front(model_dir: Path, tmp_path: Path, tokenizer: Tokenizer) -> StartFront:
    @contextlib.asynccontextmanager
    async def start(
        *,
        starts_up: bool = True,
        max_model_len: int = 512,
        max_waiting: int = 64,
        patience: Patience = PATIENCE,
        write_stall_s: float = 30.0,
        model: Path | None = None,
        lora_dir: Path | None = None,
        **config: Any,
    ) -> AsyncIterator[Running]:
        path = tmp_path / "front.sock"
        queue = QueueLimits(max_waiting=max_waiting)
        cores = FakeCores(starts_up=starts_up, max_model_len=max_model_len)
        settings = replace(FrontConfig(listen=f"unix:{path}", model_name="tiny", drain_timeout_s=0.3), **config)
        front = Front(
            settings,
            model or model_dir,
            CoreStarts(cores.spawn),
            queue,
            patience=patience,
            write_stall_s=write_stall_s,
            lora_dir=lora_dir,
        )
        listening = asyncio.Event()
        serving = asyncio.create_task(front.serve(lambda _address: listening.set()))
        await listening.wait()
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=10) as client:
            try:
                yield Running(front, path, cores, client, serving, tokenizer)
            finally:
                await client.aclose()
                front.stop()
                await asyncio.wait_for(serving, 10)
                await cores.close()

    return start


@pytest.fixture
async def running(start_front: StartFront) -> AsyncIterator[Running]:
    async with start_front() as running:
        yield running


def chat(text: str = "hello world", **fields: Any) -> dict[str, Any]:
    """A chat request's body."""
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], **fields}
