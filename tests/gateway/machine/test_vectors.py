"""The encoder of a machine: a worker's batches travel to the control process and back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.embedding.embedder import Embedder
from gateway.embedding.encoder import TextEncoder
from gateway.embedding.model_files import EncoderUnavailable
from gateway.http.asgi import Receive, Scope, Send, respond
from gateway.http.server import Listener, Server
from gateway.machine.vectors import RemoteEncoder, VectorsApplication


class Lengths:
    """Encodes a text as its length; counts batches."""

    id = "lengths-r1"
    dimensions = 3

    def __init__(self) -> None:
        self.num_batches = 0

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.num_batches += 1
        return np.array([[len(text), 1.0, 0.0] for text in texts], dtype=np.float32)


async def other(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, 418, [], b"")


@asynccontextmanager
async def control(path: Path, encoder: Lengths) -> AsyncIterator[None]:
    """The control process's end."""

    async def load(thread: Executor) -> TextEncoder:
        return encoder

    embedder = Embedder(load, count=lambda result: None, on_failure=lambda error: None)
    server = Server(
        [Listener(name="encoder", address=f"unix:{path}", app=VectorsApplication(embedder, other))],
        new_request_id=lambda: "id",
    )
    await server.start()
    try:
        yield
    finally:
        await server.close()
        await embedder.aclose()


async def test_a_workers_embedder_gets_the_control_processs_vectors(tmp_path: Path) -> None:
    encoder = Lengths()
    remote = RemoteEncoder(tmp_path / "w0.sock")
    embedder = Embedder(remote.load, close=remote.close, count=lambda result: None, on_failure=lambda error: None)
    async with control(tmp_path / "w0.sock", encoder):
        embedder.start()
        async with asyncio.timeout(10):
            while not embedder.is_ready:
                await asyncio.sleep(0.01)
        found = await asyncio.gather(*(embedder.embed("x" * length) for length in (1, 5, 9)))
        assert (embedder.encoder_id, embedder.dimensions) == ("lengths-r1", 3)
    assert [None if vector is None else vector[0] for vector in found] == [1.0, 5.0, 9.0]
    assert await embedder.embed("gone") is None  # the control process has died
    await embedder.aclose()


async def test_a_control_process_that_is_gone_is_an_error_and_its_successor_serves(tmp_path: Path) -> None:
    remote = RemoteEncoder(tmp_path / "w0.sock")
    with ThreadPoolExecutor(1) as thread:
        loop = asyncio.get_running_loop()
        async with control(tmp_path / "w0.sock", Lengths()):
            assert (await remote.load(thread)).dimensions == 3
        with pytest.raises(EncoderUnavailable):
            await loop.run_in_executor(thread, remote.encode, ["abc"])
        async with control(tmp_path / "w0.sock", Lengths()):
            found = None
            async with asyncio.timeout(10):
                while found is None:  # the first batch lets it load
                    with contextlib.suppress(EncoderUnavailable):
                        found = await loop.run_in_executor(thread, remote.encode, ["abc", "de"])
            assert found[:, 0].tolist() == [3.0, 2.0]
    remote.close()
