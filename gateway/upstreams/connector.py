"""Connector: makes one connection by name, address after address, with TLS, directly or through a proxy.

It is bounded in time and safe to cancel.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable

from gateway.upstreams.http1.connection import Connection
from gateway.upstreams.http1.errors import ConnectError, ConnectTimeout, ExchangePhase, TlsError, TotalTimeout
from gateway.upstreams.http1.request import ExchangeTimeouts
from gateway.upstreams.http1.target import Target
from gateway.upstreams.proxy import Proxy
from gateway.upstreams.resolver import Resolver
from gateway.upstreams.tls import client_context, require_verification
from gateway.util.time_limit import time_limit

_MAX_TUNNEL_HEAD_BYTES = 16 * 1024
_TUNNEL_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")
_FULL_QUEUE_DELAYS_S = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512)


Join = Callable[[], Awaitable[socket.socket]]
"""Opener of a connection to an application in this process; returns the client's end of a socket pair."""


class Connector:
    """Factory of connections to one target."""

    def __init__(
        self, target: Target, resolver: Resolver, context: ssl.SSLContext | None, proxy: Proxy | Join | None = None
    ) -> None:
        """Create a factory; a target in this process has a Join in place of a proxy."""
        self._target = target
        self._proxy = proxy if isinstance(proxy, Proxy) else None
        self._join = None if isinstance(proxy, Proxy) else proxy
        self._resolver = resolver
        self._context = require_verification(context or client_context()) if target.is_tls else None

    async def connect(self, protocol: Connection, timeouts: ExchangeTimeouts) -> None:
        """Connect `protocol` to the target.

        Raises:
            ConnectError: No address accepted the connection, or TLS failed.
            ConnectTimeout: The connect limit passed.
            TotalTimeout: The total limit passed.
        """
        limits = [limit for limit in (timeouts.connect_s, timeouts.total_s) if limit is not None]
        limit_s = min(limits, default=None)
        try:
            async with time_limit(limit_s):
                await self._connect(protocol, limit_s)
        except TimeoutError as error:
            kind = TotalTimeout if limit_s is not None and limit_s != timeouts.connect_s else ConnectTimeout
            within = "in time" if limit_s is None else f"within {limit_s:g} s"
            raise kind(f"{self._target}: no connection {within}", phase=ExchangePhase.CONNECT) from error
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise TlsError(f"{self._target}: TLS failed: {error}") from error
        except OSError as error:
            raise ConnectError(f"{self._target}: {error.strerror or error}") from error

    async def _connect(self, protocol: Connection, limit_s: float | None) -> None:
        if self._target.is_builtin:
            if self._join is None:
                raise ConnectError(f"{self._target}: this process has no such application")
            own = await self._join()
            await asyncio.get_running_loop().create_unix_connection(lambda: protocol, sock=own)
            return
        if self._target.socket_path is not None:
            raw = await connect_unix(self._target.socket_path)
            await asyncio.get_running_loop().create_unix_connection(lambda: protocol, sock=raw)
            return
        addresses = await self._resolver.resolve(self._target.host if self._proxy is None else self._proxy.host)
        for index, address in enumerate(addresses):
            num_left = len(addresses) - index
            try:
                # An address that drops packets may only use its share of the time.
                async with time_limit(None if limit_s is None or num_left == 1 else limit_s / len(addresses)):
                    await self._connect_to(protocol, address)
                return
            except ssl.SSLError:
                raise
            except OSError:
                if num_left == 1:
                    raise

    async def _connect_to(self, protocol: Connection, address: str) -> None:
        if self._proxy is not None:
            await self._connect_through(self._proxy, protocol, address)
            return
        await asyncio.get_running_loop().create_connection(
            lambda: protocol,
            address,
            self._target.port,
            ssl=self._context,
            server_hostname=self._target.tls_name or self._target.host if self._target.is_tls else None,
        )

    async def _connect_through(self, proxy: Proxy, protocol: Connection, address: str) -> None:
        """Connect by a proxy: through a tunnel for TLS, else to the proxy itself, which reads the target's URL."""
        loop, target = asyncio.get_running_loop(), self._target
        if not target.is_tls:
            await loop.create_connection(lambda: protocol, address, proxy.port)
            return
        raw = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            raw.setblocking(False)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(raw, (address, proxy.port))
            await _open_tunnel(raw, proxy, target)
            await loop.create_connection(
                lambda: protocol, sock=raw, ssl=self._context, server_hostname=target.tls_name or target.host
            )
        except BaseException:  # cancellation too: no other code owns the socket
            raw.close()
            raise


async def _open_tunnel(raw: socket.socket, proxy: Proxy, target: Target) -> None:
    """Request a tunnel to the target on a connection to the proxy; raises ConnectError when the proxy refuses."""
    loop, head = asyncio.get_running_loop(), b""
    await loop.sock_sendall(raw, proxy.connect_head(target))
    while b"\r\n\r\n" not in head:
        piece = await loop.sock_recv(raw, _MAX_TUNNEL_HEAD_BYTES)
        head += piece
        if not piece or len(head) > _MAX_TUNNEL_HEAD_BYTES:
            raise ConnectError(f"{target}: the proxy {proxy} gave no answer to CONNECT")
    status = _TUNNEL_STATUS.match(head)
    if status is None:
        raise ConnectError(f"{target}: the proxy {proxy} does not speak HTTP")
    if not status[1].startswith(b"2"):
        remedy = "; it needs other credentials" if status[1] == b"407" else ""
        raise ConnectError(f"{target}: the proxy {proxy} refused CONNECT with status {status[1].decode()}{remedy}")
    if not head.endswith(b"\r\n\r\n"):
        raise ConnectError(f"{target}: the proxy {proxy} sent more than an answer to CONNECT")


async def connect_unix(path: str) -> socket.socket:
    """Return a connected Unix socket.

    Linux returns EAGAIN at once while the listener's queue is full. asyncio takes that for a connection under way and
    uvloop for a failure. It ends as soon as the server accepts, so the function retries for a short time.

    Raises:
        OSError: The connection failed.
    """
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        raw.setblocking(False)
        for delay_s in _FULL_QUEUE_DELAYS_S:
            try:
                raw.connect(path)
                return raw
            except BlockingIOError:
                await asyncio.sleep(delay_s)
        raw.connect(path)
    except BaseException:  # cancellation too: no other code owns the socket
        raw.close()
        raise
    return raw
