"""The fault proxy does what it states, and nothing when it is given nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.fault_proxy import FaultProxy, FullBacklog, sliced

ANSWER = b"0123456789" * 10


@asynccontextmanager
async def echoing(folder: Path) -> AsyncIterator[FaultProxy]:
    """A proxy in front of a server that answers every piece it gets with ANSWER."""

    served: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            while (data := await reader.read(100)) and data != b"bye":
                writer.write(ANSWER)
        writer.close()

    server = await asyncio.start_unix_server(serve, str(folder / "up.sock"))
    try:
        async with FaultProxy(folder / "up.sock") as proxy:
            yield proxy
            while len(served) < proxy.num_passed:  # what was passed on last has a handler to end
                await asyncio.sleep(0)
    finally:
        server.close()
        await asyncio.gather(*(task for task in served if task is not None))


async def call(proxy: FaultProxy, num_bytes: int = len(ANSWER), limit_s: float = 1.0) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        writer.write(b"hello")
        return await asyncio.wait_for(reader.readexactly(num_bytes), limit_s)
    finally:
        writer.close()


async def test_without_toxics_bytes_go_through(tmp_path: Path) -> None:
    async with echoing(tmp_path) as proxy:
        assert await call(proxy) == ANSWER
        assert (proxy.num_accepted, proxy.bytes_up) == (1, 5)


async def test_slices_change_no_byte(tmp_path: Path) -> None:
    async with echoing(tmp_path) as proxy:
        proxy.toxics.slice_bytes = 1
        assert await call(proxy) == ANSWER
    assert sliced(b"abcde", 2) == [b"ab", b"cd", b"e"]


async def test_latency_and_bandwidth_take_their_time(tmp_path: Path) -> None:
    async with echoing(tmp_path) as proxy:
        proxy.toxics.latency_s = 0.05
        begun = time.monotonic()
        await call(proxy)
        assert time.monotonic() - begun >= 0.05
        proxy.toxics.latency_s, proxy.toxics.bytes_per_s, proxy.toxics.slice_bytes = 0.0, 2000.0, 10
        begun = time.monotonic()
        await call(proxy)
        assert time.monotonic() - begun >= 0.04


@pytest.mark.parametrize("toxic", ["is_black_hole", "is_frozen"])
async def test_a_black_hole_takes_requests_and_gives_nothing(tmp_path: Path, toxic: str) -> None:
    async with echoing(tmp_path) as proxy:
        setattr(proxy.toxics, toxic, True)
        with pytest.raises(TimeoutError):
            await call(proxy, limit_s=0.05)


async def test_a_limit_ends_the_connection_after_so_many_bytes(tmp_path: Path) -> None:
    async with echoing(tmp_path) as proxy:
        proxy.toxics.limit_bytes = 30
        with pytest.raises(asyncio.IncompleteReadError) as caught:
            await call(proxy)
        assert caught.value.partial == ANSWER[:30]


async def test_a_reset_is_a_reset(tmp_path: Path) -> None:
    async with echoing(tmp_path) as proxy:
        proxy.toxics.resets_on_request = True
        with pytest.raises(ConnectionResetError):
            await call(proxy)


async def test_down_refuses_and_up_listens_on_the_same_port(tmp_path: Path) -> None:
    async with echoing(tmp_path) as proxy:
        port = proxy.port
        await proxy.down()
        with pytest.raises(ConnectionRefusedError):
            await call(proxy)
        await proxy.up()
        assert (proxy.port, await call(proxy)) == (port, ANSWER)


@pytest.mark.parametrize("num_turns", range(6))
async def test_a_connection_accepted_while_it_goes_down_is_cut_too(tmp_path: Path, num_turns: int) -> None:
    async with echoing(tmp_path) as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port))
        for _ in range(num_turns):  # at one of these its handler is made and has not run
            await asyncio.sleep(0)
        await proxy.down()
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(b"hello")
                assert await asyncio.wait_for(reader.read(1), 1.0) == b""
        finally:
            writer.close()


async def test_a_slow_close_comes_later(tmp_path: Path) -> None:
    async with echoing(tmp_path) as proxy:
        proxy.toxics.slow_close_s = 0.05
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        begun = time.monotonic()
        writer.write(b"bye")
        assert await reader.read() == b""
        assert time.monotonic() - begun >= 0.05
        writer.close()


async def test_a_full_backlog_answers_no_connect() -> None:
    with FullBacklog() as hole:
        raw = socket.socket()
        raw.setblocking(False)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", hole.port)), 0.1)
        raw.close()
