"""Gateways that are stopped and replaced while they work."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.faults.processes import GatewayProcess, gateway_process, steady_load, until_more
from tests.faults.stack import streaming
from tests.gateway.scripted import ScriptedUpstream
from tests.gateway.stack import Reply, chat, encode

NUM_STREAMS = 500
NUM_WAVE = 50
NUM_CLIENTS = 8


async def stream(port: int) -> Reply:
    """One stream, read to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode(chat(stream=True)))
    raw = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return Reply(raw)


async def connected(port: int, engine: ScriptedUpstream) -> list[asyncio.Task[Reply]]:
    """All streams, open at the engine; wave by wave, for this loop plays the clients and the engine as well."""
    streams: list[asyncio.Task[Reply]] = []
    async with asyncio.timeout(60):
        while len(streams) < NUM_STREAMS:
            streams += [asyncio.create_task(stream(port)) for _ in range(NUM_WAVE)]
            while len(engine.received) < len(streams):
                await asyncio.sleep(0.02)
    return streams


async def test_sigterm_lets_500_streams_finish_and_ends_the_rest_with_an_error_event(tmp_path: Path) -> None:
    """Fault row 38: no stream is cut without a word, nothing new is accepted, the exit code is 0."""
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine:
        quick, slow = streaming(*"abcde", pause_s=0.4), streaming(*"abcde", pause_s=30.0)
        engine.scripts = [quick if number % 5 else slow for number in range(NUM_STREAMS)]
        async with gateway_process(
            tmp_path, "a", engine.path, listen="127.0.0.1:0", settings={"process.drain_timeout_s": 5}
        ) as gateway:
            port = int((await gateway.until("started"))["listening"]["public"][0].rpartition(":")[2])
            streams = await connected(port, engine)
            gateway.terminate()
            await gateway.until("draining")
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            replies = await asyncio.gather(*streams)

            assert await gateway.ended() == 0
            whole = [reply for reply in replies if reply.body.endswith(b"data: [DONE]\n\n")]
            notified = [reply for reply in replies if b'"server_is_overloaded"' in reply.body.rsplit(b"data: ", 1)[-1]]
            assert len(whole) == NUM_STREAMS * 4 // 5
            assert len(whole) + len(notified) == NUM_STREAMS
            lines = gateway.lines("request")
            assert len(lines) == NUM_STREAMS
            assert sorted({line["outcome"] for line in lines}) == ["completed", "shed"]
            assert gateway.lines("stopped")[0]["cancelled"] == NUM_STREAMS // 5


@pytest.mark.parametrize("shares", ["the socket", "the port"])
async def test_a_rolling_restart_fails_no_request(tmp_path: Path, shares: str) -> None:
    """Fault row 39: two processes serve one port; each is replaced under load.

    Either their parent holds the one socket that both accept from, or each has its own with SO_REUSEPORT.
    """
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(ScriptedUpstream(tmp_path / "engine.sock"))
        listening = stack.enter_context(socket.socket())
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(("127.0.0.1", 0))
        port, number = listening.getsockname()[1], listening.fileno()
        is_inherited = shares == "the socket"
        if is_inherited:
            listening.listen(1024)

        async def start(name: str) -> GatewayProcess:
            return await stack.enter_async_context(
                gateway_process(
                    tmp_path,
                    name,
                    engine.path,
                    listen=f"fd:{number}" if is_inherited else f"127.0.0.1:{port}",
                    pass_fds=(number,) if is_inherited else (),
                    settings={"public.shared": "false" if is_inherited else "true", "process.drain_notice_s": 0.3},
                )
            )

        first = await asyncio.gather(start("a"), start("b"))
        async with steady_load(port, NUM_CLIENTS) as clients:
            await until_more(clients)
            await asyncio.gather(start("c"), start("d"))
            for old in first:
                await until_more(clients)
                old.terminate()
                assert await old.ended() == 0
                await until_more(clients)
        assert [failure for client in clients for failure in client.failures] == []
        assert all(gateway.lines("stopped")[0]["cancelled"] == 0 for gateway in first)
