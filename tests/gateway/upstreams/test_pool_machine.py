"""The connection pool of one deployment, whatever ends when: every place comes back, every response is its own."""

from __future__ import annotations

import asyncio
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.app.connections.upstream_clients import open_upstream
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from loadtests.simulation.virtual_network import NetworkedLoop, VirtualNetwork, VirtualTransport, Weather

MAX_CONNECTIONS = 4
PORT = 9000
CALM = Weather(
    refused_ratio=0.0, hole_ratio=0.0, short_ratio=0.0, silent_ratio=0.0, late_ratio=0.0, cut_ratio=0.3
)  # fmt: skip
TIMEOUTS = ExchangeTimeouts(connect_s=1.0, first_byte_s=20.0, inter_chunk_s=20.0, total_s=60.0)


class HeldConnection(asyncio.Protocol):
    """The upstream's end of a connection: it answers when the machine lets it."""

    def __init__(self, opened: list[HeldConnection]) -> None:
        self.body = b""
        """Of the request that waits for its response; empty without one."""
        self.begun = False
        self.is_open = True
        opened.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, VirtualTransport)
        self.transport = transport
        self._input = b""

    def data_received(self, data: bytes) -> None:
        self._input += data
        head, end, body = self._input.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0) if end else 0
        if end and len(body) >= length:
            assert not self.body, "a second request before the first was answered"
            self._input, self.body, self.begun = b"", body, False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False


class PoolMachine(RuleBasedStateMachine):
    """A real client over connections in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = NetworkedLoop()
        network = VirtualNetwork(random.Random(1), CALM)
        self.loop.network = network
        self.network = network
        self.opened: list[HeldConnection] = []
        network.listeners[PORT] = lambda: HeldConnection(self.opened)
        limits = PoolLimits(max_connections=MAX_CONNECTIONS, idle_s=3.0, lifetime_s=30.0)
        self.client = open_upstream(Target.parse(f"http://127.0.0.1:{PORT}"), limits=limits, clock=self.loop.time)
        self.tasks: list[asyncio.Task[None]] = []
        self.num_sent = 0
        self.num_whole = 0

    def turn(self, delay_s: float = 0.05) -> None:
        self.loop.run_until_complete(asyncio.sleep(delay_s))

    async def exchange(self, body: bytes) -> None:
        request = UpstreamRequest(b"POST", b"/v1", [], body, ())
        try:
            async with await self.client.send(request, TIMEOUTS) as response:
                assert await response.read(1000) == b"re " + body
        except UpstreamError:
            return
        self.num_whole += 1

    def waiting(self) -> list[HeldConnection]:
        return [one for one in self.opened if one.is_open and one.body]

    @rule(is_left_at_once=st.booleans())
    def send(self, is_left_at_once: bool) -> None:
        self.num_sent += 1
        task = self.loop.create_task(self.exchange(b"request %d" % self.num_sent))
        self.tasks.append(task)
        if is_left_at_once:
            self.loop.run_until_complete(asyncio.sleep(0))
            task.cancel()
        self.turn()

    @precondition(lambda self: self.waiting())
    @rule(data=st.data(), closes=st.booleans(), leaves=st.booleans())
    def respond(self, data: st.DataObject, closes: bool, leaves: bool) -> None:
        """A whole response, perhaps just as the client leaves, perhaps with the connection's end right behind it."""
        one = data.draw(st.sampled_from(self.waiting()))
        body = b"re " + one.body
        head = b"" if one.begun else b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
        one.transport.write(head + (body[2:] if one.begun else body))
        one.body = b""
        if closes:
            one.transport.close()
        if leaves:
            self.cancel(data)
        self.turn()

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """The head and two bytes."""
        one = data.draw(st.sampled_from(self.waiting()))
        if not one.begun:
            one.begun = True
            one.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\nre" % len(b"re " + one.body))
        self.turn()

    @precondition(lambda self: any(one.is_open for one in self.opened))
    @rule(data=st.data(), is_reset=st.booleans(), has_junk=st.booleans())
    def end_connection(self, data: st.DataObject, is_reset: bool, has_junk: bool) -> None:
        one = data.draw(st.sampled_from([one for one in self.opened if one.is_open]))
        if has_junk and not one.body:
            one.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\njunk")
        if is_reset:
            one.transport.abort()
        else:
            one.transport.close()
        self.turn()

    @precondition(lambda self: any(not task.done() for task in self.tasks))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.cancel(data)
        self.turn()

    def cancel(self, data: st.DataObject) -> None:
        pending = [task for task in self.tasks if not task.done()]
        if pending:
            data.draw(st.sampled_from(pending)).cancel()

    @rule(count=st.integers(0, MAX_CONNECTIONS))
    def warm(self, count: int) -> None:
        task = self.loop.create_task(self.client.warm(count))
        self.turn()
        assert task.done()
        assert task.cancelled() or task.exception() is None or isinstance(task.exception(), UpstreamError)

    @rule(seconds=st.sampled_from([0.5, 2.9, 3.1, 21.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.turn(seconds)

    @invariant()
    def counts_are_right(self) -> None:
        self.client.check_integrity()
        pool = self.client.snapshot()
        assert pool.num_busy + pool.num_idle + pool.num_connecting <= MAX_CONNECTIONS
        assert pool.num_busy == sum(not task.done() for task in self.tasks)
        for task in self.tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise AssertionError("a response was not its request's") from task.exception()

    def teardown(self) -> None:
        for task in self.tasks:
            task.cancel()
        self.turn()
        pool = self.client.snapshot()
        assert (pool.num_busy, pool.num_connecting) == (0, 0)
        self.loop.run_until_complete(self.client.aclose())
        self.turn(1.0)
        pool = self.client.snapshot()
        assert (pool.num_idle, pool.num_closing) == (0, 0)
        assert not any(one.is_open for one in self.opened)
        self.loop.close()


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
