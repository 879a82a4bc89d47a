"""UpstreamClient: the HTTP/1.1 client of one deployment, with a connection pool."""

from __future__ import annotations

import asyncio
import contextlib
import ssl as ssl_module
import time
from collections.abc import Callable

from gateway.upstreams.connector import Connector, Join
from gateway.upstreams.http1.connection import Clock, Connection
from gateway.upstreams.http1.errors import ClosedEarly, ConnectError, ExchangePhase, ResponseClosed, UpstreamError
from gateway.upstreams.http1.pulse import Pulse
from gateway.upstreams.http1.reader import WireLimits
from gateway.upstreams.http1.request import ExchangeTimeouts, RequestEncoder, UpstreamRequest
from gateway.upstreams.http1.response import UpstreamResponse
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import ConnectionPool, PoolSnapshot
from gateway.upstreams.proxy import Proxy
from gateway.upstreams.resolver import Resolver

_MAX_BUFFER_BYTES = 64 * 1024
_SPARE_TIMEOUTS = ExchangeTimeouts(connect_s=1.0)


class UpstreamClient:
    """HTTP/1.1 client of one target; every method belongs to one event loop."""

    def __init__(
        self,
        target: Target,
        pool: ConnectionPool,
        *,
        clock: Clock = time.monotonic,
        ssl: ssl_module.SSLContext | None = None,
        proxy: Proxy | Join | None = None,
        resolver: Resolver | None = None,
        wire_limits: WireLimits | None = None,
        max_buffer_bytes: int = _MAX_BUFFER_BYTES,
    ) -> None:
        """Create a client without connections; a target in this process has a Join in place of a proxy."""
        self._name = str(target)
        self._clock = clock
        self._wire_limits = wire_limits or WireLimits()
        self._max_buffer_bytes = max_buffer_bytes
        proxy_line = proxy.header_line if isinstance(proxy, Proxy) and not target.is_tls else None
        self._encoder = RequestEncoder(target, proxy_line=proxy_line)
        self._pool = pool
        self._owns_resolver = resolver is None
        self._resolver = resolver or Resolver(clock=clock)
        self._connector = Connector(target, self._resolver, ssl, proxy)
        self.pulse = Pulse()
        self._is_closed = False
        self._spares: set[asyncio.Task[None]] = set()
        """Connections being made for which no request waits yet."""

    def __repr__(self) -> str:
        return f"<UpstreamClient {self._pool!r}>"

    async def send(
        self,
        request: UpstreamRequest,
        timeouts: ExchangeTimeouts,
        on_sent: Callable[[UpstreamResponse], None] | None = None,
    ) -> UpstreamResponse:
        """Send a request and return its response as soon as the head has arrived.

        A reused connection that the upstream closes before any byte of the response is replaced once, by a new one.

        Args:
            request: The request.
            timeouts: Time limits of the exchange.
            on_sent: Called with the pending response once the request is written to a connection.

        Raises:
            UpstreamError: The exchange failed.
            ValueError: The request is malformed.
        """
        self._refuse_if_closed()
        head = self._encoder.encode_head(request)
        started_at = asyncio.get_running_loop().time()
        connection = self._pool.take()
        if (num_wanted := self._pool.num_wanted) > len(self._spares):
            self._stock_up(num_wanted)
        if connection is not None:
            response = self._start(connection, head, request, timeouts, started_at, None)
            if on_sent is not None:
                on_sent(response)
            try:
                await response.wait_head()
            except ClosedEarly as error:
                if error.response_started:
                    raise
            else:
                return response
        before = self._clock()
        connection = await self._connect(timeouts)
        response = self._start(connection, head, request, timeouts, started_at, self._clock() - before)
        if on_sent is not None:
            on_sent(response)
        await response.wait_head()
        return response

    async def warm(self, count: int) -> None:
        """Open connections ahead of need until `count` are idle or the pool is full; raises UpstreamError."""
        self._refuse_if_closed()
        missing = min(count - self._pool.snapshot().num_idle, self._pool.num_free)
        tasks = [asyncio.ensure_future(self._connect(ExchangeTimeouts(), idle=True)) for _ in range(missing)]
        try:
            for task in tasks:
                await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _stock_up(self, num_wanted: int) -> None:
        """Make connections ahead of need while load grows, before a request has to wait for one."""
        loop = asyncio.get_running_loop()
        while len(self._spares) < num_wanted:
            task = loop.create_task(self._make_spare(), name="spare connection")
            self._spares.add(task)
            task.add_done_callback(self._spares.discard)

    async def _make_spare(self) -> None:
        with contextlib.suppress(UpstreamError):  # a request that needs a connection gets the error itself
            await self._connect(_SPARE_TIMEOUTS, idle=True)

    def snapshot(self) -> PoolSnapshot:
        """Return the current counts of connections."""
        return self._pool.snapshot()

    def check_integrity(self) -> None:
        """Check the pool's invariants; raises AssertionError."""
        self._pool.check_integrity()

    async def aclose(self) -> None:
        """Close every connection; responses in progress raise ResponseClosed. Idempotent."""
        self._is_closed = True
        for task in tuple(self._spares):
            task.cancel()
        await asyncio.gather(*self._spares, return_exceptions=True)
        await self._pool.aclose(ResponseClosed(f"{self._name}: the client was closed", phase=ExchangePhase.BODY))
        if self._owns_resolver:
            self._resolver.close()

    def _start(
        self,
        connection: Connection,
        head: bytes,
        request: UpstreamRequest,
        timeouts: ExchangeTimeouts,
        started_at: float,
        connect_s: float | None,
    ) -> UpstreamResponse:
        return connection.send(
            head, request.body, method=request.method, timeouts=timeouts, started_at=started_at, connect_s=connect_s
        )

    async def _connect(self, timeouts: ExchangeTimeouts, *, idle: bool = False) -> Connection:
        self._pool.begin_connect()
        connection = Connection(
            self._pool,
            name=self._name,
            clock=self._clock,
            wire_limits=self._wire_limits,
            max_buffer_bytes=self._max_buffer_bytes,
            loop=asyncio.get_running_loop(),
            pulse=self.pulse,
        )
        made: Connection | None = None
        try:
            await self._connector.connect(connection, timeouts)
            self._refuse_if_closed()
            if not connection.is_open:
                raise ConnectError(f"{self._name}: the upstream closed the connection as soon as it was made")
            made = connection
        finally:
            self._pool.end_connect(made, idle=idle)
            if made is None:
                connection.discard()
        return made

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ResponseClosed(f"{self._name}: the client was closed", phase=ExchangePhase.CONNECT)
