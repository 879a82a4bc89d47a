"""Acceptor and HandedConnections: least connections first, nothing lost when a worker dies or all drain."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.machine.acceptor import Acceptor, Channel
from gateway.machine.handover import CONNECTIONS_ROW, READY, HandedConnections
from gateway.machine.shared_counts import Cell, SharedCounts, create_table

NUM_WORKERS = 2
NUM_COLUMNS = NUM_WORKERS + 2


class Echo(asyncio.Protocol):
    """A connection of one worker: sends the worker's number at once."""

    def __init__(self, number: int, open_here: set[Echo]) -> None:
        self._number = number
        self._open = open_here

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._open.add(self)
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(str(self._number).encode())

    def connection_lost(self, error: Exception | None) -> None:
        self._open.discard(self)


class Bench:
    """A supervisor's acceptor and the workers' ends, in one process."""

    def __init__(self) -> None:
        self.table = create_table(NUM_COLUMNS)
        self.counts = [SharedCounts(self.table, num_columns=NUM_COLUMNS, column=column) for column in range(4)]
        row = self.counts[-1].row_of(CONNECTIONS_ROW)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setblocking(False)
        self.port = self.listening.getsockname()[1]
        self.channels = {column: Channel() for column in (1, 2)}
        self.ready: list[int] = []
        words = self.counts[-1].words
        self.acceptor = Acceptor(
            [self.listening],
            self.channels,
            num_closed=lambda column: words[self.counts[-1].cell(row, Cell.CLOSED, column)],
            on_ready=self.ready.append,
        )
        self.open: dict[int, set[Echo]] = {1: set(), 2: set()}
        self.workers: dict[int, list[HandedConnections]] = {1: [], 2: []}
        self.clients: list[asyncio.StreamWriter] = []

    async def start_worker(self, column: int) -> HandedConnections:
        """One life of a worker."""
        end = self.channels[column].workers.dup()
        worker = HandedConnections(end, self.counts[column])
        self.workers[column].append(worker)
        assert await worker.until_allowed()
        worker.begin(lambda: Echo(column, self.open[column]), {}, lambda: len(self.open[column]))
        worker.announce()
        return worker

    async def connect(self, num: int) -> list[tuple[int, asyncio.StreamWriter]]:
        """So many connections, each with the worker that has it."""
        found = []
        for _ in range(num):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            self.clients.append(writer)
            found.append((int(await asyncio.wait_for(reader.readexactly(1), 5)), writer))
        return found

    def close(self) -> None:
        self.acceptor.stop()
        for worker in (*self.workers[1], *self.workers[2]):
            worker.close()
        for client in self.clients:
            client.close()
        for channel in self.channels.values():
            channel.close()
        os.close(self.table)


@contextmanager
def bench() -> Iterator[Bench]:
    found = Bench()
    found.acceptor.start()
    found.acceptor.allow()
    try:
        yield found
    finally:
        found.close()


async def test_each_worker_has_as_many_connections() -> None:
    with bench() as found:
        await asyncio.gather(found.start_worker(1), found.start_worker(2))
        connections = await found.connect(20)
        assert Counter(column for column, _ in connections) == {1: 10, 2: 10}
        assert sorted(found.ready) == [1, 2]

        for column, writer in connections:
            if column == 1:
                writer.close()
        async with asyncio.timeout(5):
            while len(found.open[1]):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # the worker counts what has closed
        assert {column for column, _ in await found.connect(10)} == {1}


async def test_connections_wait_for_the_first_worker() -> None:
    with bench() as found:
        waiting = asyncio.create_task(found.connect(1))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await found.start_worker(2)
        assert [column for column, _ in await waiting] == [2]


async def test_what_a_dead_worker_did_not_receive_goes_to_another() -> None:
    with bench() as found:
        dead = await found.start_worker(1)
        await found.start_worker(2)
        await found.connect(2)
        asyncio.get_running_loop().remove_reader(dead._channel.fileno())  # killed: it reads no more and says nothing
        waiting = [asyncio.create_task(found.connect(1)) for _ in range(4)]
        async with asyncio.timeout(5):
            while found.channels[1].num_handed < 3:
                await asyncio.sleep(0.01)
        found.counts[-1].clear(1)
        found.acceptor.lost(1)
        assert {column for each in await asyncio.gather(*waiting) for column, _ in each} == {2}
        await found.start_worker(1)  # its next life may start at once
        assert {column for column, _ in await found.connect(2)} == {1}


async def test_a_worker_that_ends_by_itself_gets_no_further_connection() -> None:
    with bench() as found:
        ending = await found.start_worker(1)
        await found.start_worker(2)
        await found.connect(2)
        ending.close()
        ending.close()
        assert {column for column, _ in await found.connect(6)} == {2}
        assert found.ready == [1, 2]


async def test_what_an_ending_worker_did_not_receive_goes_to_another() -> None:
    with bench() as found:
        ending = await found.start_worker(1)
        found.channels[1].num_handed = -10  # connections go there first
        await found.start_worker(2)
        async with asyncio.timeout(5):
            while found.ready != [1, 2]:
                await asyncio.sleep(0)
        accepted, client = socket.socketpair()
        found.acceptor._pending.append(accepted)
        found.acceptor._hand_over_pending()
        ending.close()  # before it reads
        with client:
            client.setblocking(False)
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1), 5) == b"2"


async def test_the_end_hands_over_what_waits_and_refuses_the_rest() -> None:
    with bench() as found:
        worker = await found.start_worker(1)
        await found.start_worker(2)
        reader, writer = await asyncio.open_connection("127.0.0.1", found.port)
        found.acceptor.stop()
        await worker.until_ended(5)
        assert await asyncio.wait_for(reader.readexactly(1), 5) in (b"1", b"2")
        writer.close()
        with contextlib.suppress(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", found.port)
            raise AssertionError("nobody listens")


def test_a_channel_begins_with_no_byte() -> None:
    channel = Channel()
    try:
        channel.workers.send(READY)
        assert channel.own.recv(8) == READY
    finally:
        channel.close()
