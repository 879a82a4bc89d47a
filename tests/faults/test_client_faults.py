"""Faults of clients: they leave, vanish, half-close or read too slowly, at every moment."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.stack import FaultStack, faulty, streaming
from tests.gateway.scripted import Wire, chunk, hang
from tests.gateway.stack import Reply, chat, encode

PROMPTLY_S = 0.1
TOKEN_S = 0.05


def port_of(stack: FaultStack) -> int:
    """Where it listens."""
    return int(stack.gateway.server.addresses["public"][0].rpartition(":")[2])


class RawClient:
    """A blocking socket moved by the loop, so that a test decides what its end of the connection does."""

    def __init__(self, stack: FaultStack, *, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.setblocking(False)
        self._where = ("127.0.0.1", port_of(stack))

    async def send(self, data: bytes) -> None:
        """Connect and send."""
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self.socket, self._where)
        await loop.sock_sendall(self.socket, data)

    async def read(self, size: int = 65536) -> bytes:
        """What comes next."""
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.socket, size), 5)

    async def read_until(self, mark: bytes) -> bytes:
        """Everything up to a mark."""
        data = b""
        while mark not in data:
            piece = await self.read()
            assert piece, data
            data += piece
        return data

    def reset(self) -> None:
        """Close with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


async def call(stack: FaultStack, **fields: Any) -> Reply:
    """One request over TCP."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(stack))
    writer.write(encode(chat(**fields)))
    raw = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return Reply(raw)


async def ticking(wire: Wire) -> None:
    """A token every TOKEN_S, until the client is gone."""
    await wire.start_stream()
    while not wire.is_gone.is_set():
        await wire.event(chunk("tick"))
        await asyncio.sleep(TOKEN_S)


async def test_a_client_that_leaves_the_queue_costs_the_upstream_nothing(tmp_path: Path) -> None:
    """Fault row 1."""
    async with faulty(tmp_path, num=1, permits=1, listen="127.0.0.1:0") as stack:
        stack.engines[0].scripts = [hang]
        first, second = RawClient(stack), RawClient(stack)
        await first.send(encode(chat()))
        await asyncio.wait_for(stack.engines[0].got_request.wait(), 2)
        await second.send(encode(chat()))
        while not stack.live(0).limiter.num_waiting:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        second.socket.close()
        line = (await stack.recorded(1))[0]

        assert (line["outcome"], line["cancelled_while"]) == ("cancelled", "queued")
        assert stack.live(0).limiter.num_waiting == 0
        assert len(stack.engines[0].received) == 1
        first.socket.close()
        await stack.check_invariants(2)


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_reset_during_prefill_cancels_the_upstream_within_100_ms(tmp_path: Path, is_stream: bool) -> None:
    """Fault row 2: SO_LINGER 0 before the first byte."""
    async with faulty(tmp_path, num=1, listen="127.0.0.1:0") as stack:
        stack.engines[0].scripts = [hang]
        client = RawClient(stack)
        await client.send(encode(chat(stream=is_stream)))
        await asyncio.wait_for(stack.engines[0].got_request.wait(), 2)
        left_at = time.monotonic()
        client.reset()
        await asyncio.wait_for(stack.engines[0].gone.wait(), 2)

        assert time.monotonic() - left_at < PROMPTLY_S
        assert (await stack.recorded(1))[0]["cancelled_while"] == "prefill"
        await stack.check_invariants(1)


async def test_leaving_in_the_middle_stops_the_upstream_within_a_token(tmp_path: Path) -> None:
    """Fault row 3: after three pieces; what was generated is recorded as a partial answer."""
    async with faulty(tmp_path, num=1, listen="127.0.0.1:0") as stack:
        stack.engines[0].scripts = [ticking]
        client = RawClient(stack)
        await client.send(encode(chat(stream=True)))
        data = b""
        while data.count(b"tick") < 3:
            data += await client.read()
        left_at = time.monotonic()
        client.socket.close()
        await asyncio.wait_for(stack.engines[0].gone.wait(), 2)

        assert time.monotonic() - left_at < TOKEN_S + PROMPTLY_S
        line = (await stack.recorded(1))[0]
        assert (line["outcome"], line["cancelled_while"]) == ("cancelled", "decode")
        assert line["bytes_out"] >= len(chunk("tick")) * 3
        assert line["num_chunks"] >= 3
        assert "completion_tokens" not in line  # nobody has counted them
        await stack.check_invariants(1)


async def test_a_client_that_vanished_is_given_up_at_the_write_stall_limit(tmp_path: Path) -> None:
    """Fault row 4: no FIN comes and nothing is acknowledged beyond the windows; the permit is free again.

    Packets cannot be dropped here without privileges. A peer that never reads looks the same to the gateway's writes;
    TCP_USER_TIMEOUT, for data that is not even acknowledged, is asserted on the socket.
    """

    async def flood(wire: Wire) -> None:
        await wire.start_stream()
        while not wire.is_gone.is_set():
            await wire.event(chunk("x" * 20_000))

    edge = {"edge.connections.write_stall_timeout_s": 0.5}
    async with faulty(tmp_path, num=1, listen="127.0.0.1:0", edge=edge) as stack:
        stack.engines[0].scripts = [flood]
        client = RawClient(stack, receive_bytes=4096)
        await client.send(encode(chat(stream=True)))
        await asyncio.wait_for(stack.engines[0].got_request.wait(), 2)
        (state,) = [state for state in stack.gateway.server._states if state.name == "public"]
        (connection,) = state.open
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 500

        await asyncio.wait_for(stack.engines[0].gone.wait(), 5)
        await stack.until_idle()
        assert (await stack.recorded(1))[0]["outcome"] == "cancelled"
        client.socket.close()
        await stack.check_invariants(1)


async def test_a_half_closed_client_counts_as_gone(tmp_path: Path) -> None:
    """Fault row 5: documented: a proxy cannot show it from a client that left."""
    async with faulty(tmp_path, num=1, listen="127.0.0.1:0") as stack:
        stack.engines[0].scripts = [hang]
        client = RawClient(stack)
        await client.send(encode(chat(stream=True), headers={"connection": "keep-alive"}))
        await asyncio.wait_for(stack.engines[0].got_request.wait(), 2)
        client.socket.shutdown(socket.SHUT_WR)
        await asyncio.wait_for(stack.engines[0].gone.wait(), 2)

        assert (await stack.recorded(1))[0]["outcome"] == "cancelled"
        assert await client.read() == b""
        client.socket.close()
        await stack.check_invariants(1)


async def test_a_slow_reader_pauses_its_own_upstream_and_nobody_elses(tmp_path: Path) -> None:
    """Fault row 6: a byte now and then, beside 100 others; what is held for it is bounded, and it is not starved."""
    sent = 0

    async def flood(wire: Wire) -> None:
        nonlocal sent
        await wire.start_stream()
        while not wire.is_gone.is_set():
            await wire.event(chunk("x" * 20_000))
            sent += 20_000

    async with faulty(tmp_path, num=1, permits=200, listen="127.0.0.1:0") as stack:
        stack.engines[0].scripts = [flood]
        slow = RawClient(stack, receive_bytes=4096)
        await slow.send(encode(chat(stream=True)))
        await asyncio.wait_for(stack.engines[0].got_request.wait(), 2)
        before = -1
        while sent != before:  # until the upstream is paused
            before = sent
            await asyncio.sleep(0.1)
            await slow.read(1)
        stack.engines[0].otherwise = streaming("a", "b")
        begun = time.monotonic()
        replies = await asyncio.gather(*(call(stack, stream=True) for _ in range(100)))

        assert {reply.status for reply in replies} == {200}
        assert time.monotonic() - begun < 5
        assert sent < 20_000_000  # socket buffers of four hops, and no more
        assert stack.live(0).health.is_fit  # the silence is the client's
        slow.reset()
        await stack.check_invariants(101)


async def test_a_storm_of_cancellations_leaks_nothing(tmp_path: Path) -> None:
    """Fault row 10: half of 1,000 requests leave at a random moment; then everything works as before."""
    rng = random.Random(7)
    async with faulty(tmp_path, permits=16, max_queue=2000, listen="127.0.0.1:0") as stack:
        for engine in stack.engines:
            engine.otherwise = streaming("a", "b", "c", pause_s=0.002)
        gate = asyncio.Semaphore(100)

        async def one(leaves_after_s: float | None) -> None:
            async with gate:
                reader, writer = await asyncio.open_connection("127.0.0.1", port_of(stack))
                writer.write(encode(chat(stream=True)))
                if leaves_after_s is None:
                    assert (await asyncio.wait_for(reader.read(), 30)).endswith(b"0\r\n\r\n")
                else:
                    await asyncio.sleep(leaves_after_s)
                    writer.transport.abort()
                writer.close()

        leaving = [rng.random() * 0.05 if number % 2 else None for number in range(1000)]
        await asyncio.gather(*(one(moment) for moment in leaving))
        await stack.until_idle()
        replies = await asyncio.gather(*(call(stack, stream=True) for _ in range(16)))

        assert {reply.status for reply in replies} == {200}
        lines = await stack.recorded(1000)
        assert {line["outcome"] for line in lines} <= {"completed", "cancelled"}
        assert sum(line["outcome"] == "completed" for line in lines) >= 516
        await stack.check_invariants(1016)
