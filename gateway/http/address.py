"""Listening sockets: parsing an address, binding it, and setting what accepted connections inherit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from ipaddress import IPv6Address, ip_address

from gateway.http.limits import EdgeLimits

_UNIX_MODE = 0o660
_KEEPALIVE_IDLE_S = 30
_KEEPALIVE_INTERVAL_S = 10
_KEEPALIVE_PROBES = 3
_NOTSENT_LOWAT_BYTES = 128 * 1024


async def bind(address: str, *, reuse_port: bool, limits: EdgeLimits) -> list[socket.socket]:
    """Bound sockets for `host:port`, `[v6]:port`, `unix:/path` or `fd:N`; ValueError otherwise, OSError when taken."""
    if address.startswith("fd:"):
        listening = _inherited(address)
        if listening.family != socket.AF_UNIX:
            _set_tcp_options(listening, reuse_port=False, limits=limits)
        return [listening]
    if address.startswith("unix:"):
        return [_bind_unix(address.removeprefix("unix:"))]
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"listener address {address!r}: expected host:port, [v6]:port or unix:/path")
    host = host.removeprefix("[").removesuffix("]")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, where in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            sockets.append(listening)
            _set_tcp_options(listening, reuse_port=reuse_port, limits=limits)
            listening.bind(where)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets


def is_loopback_host(host: str) -> bool:
    """Whether a peer's address is this machine's loopback, an IPv4 address written as IPv6 included."""
    if host == "127.0.0.1":
        return True
    try:
        found = ip_address(host)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


def inherited_address(address: str) -> str:
    """Where the socket behind `fd:N` is bound. Raises OSError when there is none."""
    with _inherited(address) as listening:
        return describe(listening)


def _inherited(address: str) -> socket.socket:
    """A listening socket that the parent process bound and keeps: its queue outlives every process that serves it."""
    listening = socket.socket(fileno=os.dup(int(address.removeprefix("fd:"))))
    listening.setblocking(False)
    return listening


def describe(listening: socket.socket) -> str:
    """The address a socket really has, in the form `bind` takes."""
    name = listening.getsockname()
    if listening.family == socket.AF_UNIX:
        return f"unix:{name}"
    return f"[{name[0]}]:{name[1]}" if listening.family == socket.AF_INET6 else f"{name[0]}:{name[1]}"


def _set_tcp_options(listening: socket.socket, *, reuse_port: bool, limits: EdgeLimits) -> None:
    """Options of the listening socket that Linux hands on to accepted ones, so that none costs a call each."""
    listening.setblocking(False)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if listening.family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # A client that vanished without a FIN: idle connections by probes, busy ones by unacknowledged data.
    for option, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", round(limits.write_stall_timeout_s * 1000)),
        ("TCP_NODELAY", 1),
        # Unsent bytes a slow reader may park in the kernel; without it megabytes per stream.
        ("TCP_NOTSENT_LOWAT", _NOTSENT_LOWAT_BYTES),
    ):
        number = getattr(socket, option, None)  # not every system has all of them
        if number is not None:
            listening.setsockopt(socket.IPPROTO_TCP, number, value)


def _bind_unix(path: str) -> socket.socket:
    """Bind a Unix socket, replacing one that a dead process left behind; OSError when somebody listens on it."""
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.bind(path)
        os.chmod(path, _UNIX_MODE)
    except OSError:
        listening.close()
        raise
    return listening


def _remove_stale(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(f"{path} exists and is not a socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
                return
        raise OSError(f"{path} is in use by another process")
