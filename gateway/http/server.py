"""Server: several hardened listeners on one event loop, and how they stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, cast

from uvicorn._types import ASGI3Application
from uvicorn.config import Config

from gateway.errors import GatewayError
from gateway.http.address import BACKLOG, bind, describe
from gateway.http.asgi import ASGIApp
from gateway.http.certificate import ServerCertificate
from gateway.http.descriptors import open_file_limit, share_connections
from gateway.http.limits import EdgeLimits
from gateway.http.protocol import EdgeProtocol
from gateway.http.state import (
    MAX_UNREAD_BYTES,
    AddressCounts,
    EdgeHooks,
    EdgeState,
    Envelope,
    RefusalHook,
    ShutdownEvents,
    date_line,
)
from gateway.util.time_limit import sleep_running

_LOGGER = logging.getLogger("penstock.edge")
_CANCEL_TIMEOUT_S = 5.0
_SETTLE_S = 1.0
"""Longest wait for the request of a connection that was accepted just before the end."""


class HandedSource(Protocol):
    """Connections that another process accepts for this one."""

    def begin(self, make: Callable[[], asyncio.Protocol], tls: Mapping[str, Any], num_open: Callable[[], int]) -> None:
        """Serve every connection by a protocol that `make` returns; `num_open` counts those that are open."""
        ...

    async def until_ended(self, timeout_s: float) -> None:
        """Wait until the last connection was handed over, for a limited time."""
        ...

    def close(self) -> None:
        """Take no further connection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """The address of one application: `host:port` (port 0: any free one), `[v6]:port`, `unix:/path` or `fd:N`.

    A listener with an empty address has connections within this process only; see `Server.join`.
    """

    name: str
    address: str
    app: ASGIApp
    limits: EdgeLimits = field(default_factory=EdgeLimits)
    reuse_port: bool = False
    certificate: ServerCertificate | None = None
    """Certificate of a listener that speaks TLS; None for plain text."""
    handed: HandedSource | None = None
    """Source of connections that another process accepts; None where this one listens on `address`."""
    envelope: Envelope | None = None
    """Callback for the body of the edge's own refusals on paths of other APIs."""
    addresses: AddressCounts | None = None
    """Connections by client address, where other processes have a part of them; None for counts of its own."""

    @property
    def tls(self) -> dict[str, Any]:
        """Arguments with which the event loop speaks TLS on accepted connections; empty for plain text."""
        if self.certificate is None:
            return {}
        return {
            "ssl": self.certificate.context,
            "ssl_handshake_timeout": self.limits.header.timeout_s,
            "ssl_shutdown_timeout": self.limits.connections.linger_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainReport:
    """The outcome of the requests that were under way when a drain began."""

    num_connections: int
    num_cancelled: int


def _ignore_refusal(listener: str, error: GatewayError) -> None:
    """Ignore a refusal: the hook of a server whose owner does not count them."""


class Server:
    """Serves its listeners from `start` to `close`; `drain` between the two lets work under way finish.

    An application learns of a drain from `scope["state"]["draining"]` (an asyncio.Event, set when it begins). When
    the drain runs out of time its task is cancelled with `EdgeChannel.is_stopping` true; what it sends before it
    returns (such as a last error event) still goes out within the grace period.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        *,
        new_request_id: Callable[[], str],
        on_refusal: RefusalHook = _ignore_refusal,
        clock: Callable[[], float] | None = None,
        tick_s: float = 0.25,
        max_unread_bytes: int = MAX_UNREAD_BYTES,
    ) -> None:
        """Prepare the listeners; `max_unread_bytes` bounds, for each, unfinished heads and input ahead of its turn."""
        self._max_unread_bytes = max_unread_bytes
        self._listeners = listeners
        self._new_request_id = new_request_id
        self._on_refusal = on_refusal
        self._clock = clock
        self._tick_s = tick_s
        self._states: list[EdgeState] = []
        self._servers: list[asyncio.Server] = []
        self._own_queues: list[tuple[socket.socket, Callable[[], EdgeProtocol], dict[str, Any]]] = []
        """Sockets that share a port with those of other processes."""
        self._handed: list[HandedSource] = []
        self._makers: dict[str, Callable[[], EdgeProtocol]] = {}
        """Factory of each listener's connections."""
        self._joining: set[asyncio.Task[Any]] = set()
        """Connections from within this process that are being accepted."""
        self._timer: asyncio.TimerHandle | None = None
        self._date_at = 0.0
        self.leaving = asyncio.Event()
        """Event that is set while requests are still served, so that clients and balancers leave without a failure."""
        self.draining = asyncio.Event()
        self.addresses: dict[str, tuple[str, ...]] = {}

    async def start(self) -> None:
        """Bind and serve every listener; raises OSError, with nothing left open, when one cannot be bound."""
        loop = asyncio.get_running_loop()
        try:
            for listener, cap in zip(self._listeners, _connection_caps(self._listeners), strict=True):
                await self._open(listener, cap, loop)
        except BaseException:
            await self.close()
            raise
        self._tick()

    async def join(self, name: str) -> socket.socket:
        """Return the client's end of a new connection to a listener, both ends of which are in this process."""
        own, served = socket.socketpair()
        own.setblocking(False)
        served.setblocking(False)
        loop = asyncio.get_running_loop()
        # A task of its own: an accept that is cancelled opens a connection of which uvloop never reports the end.
        accepting = loop.create_task(loop.connect_accepted_socket(self._makers[name], served))
        self._joining.add(accepting)
        accepting.add_done_callback(self._joining.discard)
        try:
            await asyncio.shield(accepting)
        except BaseException:  # cancellation too: no other code owns this end, and the other one ends with it
            own.close()
            raise
        return own

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections that are open go on."""
        for server in self._servers:
            server.close()
        for handed in self._handed:
            handed.close()

    async def leave(self, notice_s: float) -> None:
        """Serve everybody for `notice_s`, each answer with `connection: close`; then accept no more.

        Returns when no request is on its way in any more. Connections whose request is being answered go on.
        """
        self.leaving.set()
        for connection in self._connections():
            connection.begin_leave()
        await sleep_running(notice_s)
        await self._accept_the_last()
        self.stop_accepting()
        deadline = asyncio.get_running_loop().time() + _SETTLE_S
        while any(connection.may_be_requesting for connection in self._connections()):
            if asyncio.get_running_loop().time() >= deadline:
                return
            await asyncio.sleep(0.01)

    async def drain(self, timeout_s: float, *, grace_s: float = 1.0) -> DrainReport:
        """Stop accepting, close idle connections, wait for the others; then cancel and close those that remain."""
        self.stop_accepting()
        self.leaving.set()
        self.draining.set()
        connections = self._connections()
        for connection in connections:
            connection.begin_drain()
        await self._wait_until_closed(timeout_s)
        left = self._connections()
        num_cancelled = sum(len(state.tasks) for state in self._states)
        for connection in left:
            connection.stop()
        if left:
            await self._wait_until_closed(grace_s)
        await self.close()
        return DrainReport(num_connections=len(connections), num_cancelled=num_cancelled)

    async def close(self) -> None:
        """Stop at once: abort what is open, cancel what runs, and wait (not for ever) until it has ended."""
        self.stop_accepting()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in self._connections():
            connection.abort()
        tasks = [task for state in self._states for task in state.tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=_CANCEL_TIMEOUT_S)
            if stuck:
                _LOGGER.error("%d requests ignore their cancellation and are left behind", len(stuck))

    def sweep(self) -> None:
        """Act on every deadline that has passed; runs by itself every `tick_s`."""
        for state in self._states:
            state.sweep(state.clock())

    @property
    def num_connections(self) -> dict[str, int]:
        """Open connections by listener."""
        return {state.name: len(state.open) for state in self._states}

    async def _open(self, listener: Listener, max_connections: int, loop: asyncio.AbstractEventLoop) -> None:
        state = EdgeState(
            name=listener.name,
            limits=replace(
                listener.limits, connections=replace(listener.limits.connections, max_total=max_connections)
            ),
            loop=loop,
            clock=self._clock or loop.time,
            resolution_s=self._tick_s,
            shutdown=ShutdownEvents(leaving=self.leaving, draining=self.draining),
            hooks=EdgeHooks(
                new_request_id=self._new_request_id,
                on_refusal=self._on_refusal,
                envelope=listener.envelope,
                addresses=listener.addresses,
            ),
            max_unread_bytes=self._max_unread_bytes,
        )
        self._states.append(state)
        config = uvicorn_config(listener.app)
        make = self._makers[listener.name] = partial(EdgeProtocol, config, state)
        if listener.handed is not None:
            listener.handed.begin(make, listener.tls, lambda: len(state.open))
            self._handed.append(listener.handed)
            self.addresses[listener.name] = (listener.address,)
            return
        if not listener.address:
            return
        sockets = await bind(listener.address, reuse_port=listener.reuse_port, limits=listener.limits)
        try:
            for listening in sockets:
                if listener.reuse_port and not listener.address.startswith("fd:"):
                    self._own_queues.append((listening, make, listener.tls))
                self._servers.append(await _serve(listening, make, listener.tls))
        except BaseException:
            for listening in sockets:
                listening.close()
            raise
        self.addresses[listener.name] = tuple(describe(listening) for listening in sockets)

    async def _accept_the_last(self) -> None:
        """Take in what waits in the queues of sockets that are ours alone: closing them would reset it."""
        for handed in self._handed:
            await handed.until_ended(_SETTLE_S)
        for listening, make, tls in self._own_queues:
            listening.listen(
                0
            )  # connections that arrive from now on get no answer, and retry when another listener may exist
            while (accepted := _accept(listening)) is not None:
                await asyncio.get_running_loop().connect_accepted_socket(make, accepted, **tls)

    def _connections(self) -> list[EdgeProtocol]:
        return [connection for state in self._states for connection in state.open]

    async def _wait_until_closed(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while any(state.open or state.tasks for state in self._states) and loop.time() < deadline:
            await asyncio.sleep(min(0.02, timeout_s))

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._date_at >= 1.0:
            self._date_at = loop.time()
            line = date_line()
            for state in self._states:
                state.date_line = line
        self.sweep()
        self._timer = loop.call_later(self._tick_s, self._tick)


async def _serve(listening: socket.socket, make: Callable[[], EdgeProtocol], tls: dict[str, Any]) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    if listening.family == socket.AF_UNIX:
        return await loop.create_unix_server(make, sock=listening, backlog=BACKLOG)
    return await loop.create_server(make, sock=listening, backlog=BACKLOG, **tls)


def _accept(listening: socket.socket) -> socket.socket | None:
    """Accept the next connection in the queue; None when it is empty."""
    try:
        accepted, _ = listening.accept()
    except (BlockingIOError, ConnectionAbortedError):
        return None
    accepted.setblocking(False)
    return accepted


def _connection_caps(listeners: Sequence[Listener]) -> list[int]:
    """Return each listener's cap under this process's open file limit; log when it is below the configured one."""
    open_files = open_file_limit()
    caps = share_connections([listener.limits.connections.max_total for listener in listeners], open_files)
    for listener, cap in zip(listeners, caps, strict=True):
        if cap < listener.limits.connections.max_total:
            _LOGGER.warning(
                "listener %s: max_connections lowered from %d to %d by the open file limit of %d",
                *(listener.name, listener.limits.connections.max_total, cap, open_files),
            )
    return caps


def uvicorn_config(app: ASGIApp) -> Config:
    """Return the configuration for uvicorn's protocol class, with all other parts of uvicorn switched off."""
    config = Config(
        cast(ASGI3Application, app),
        interface="asgi3",
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
    config.load()
    return config
