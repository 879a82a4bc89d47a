"""Listening sockets: parsing an address, binding it, and setting what accepted connections inherit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from ipaddress import IPv6Address, ip_address

from gateway.http.limits import EdgeLimits

BACKLOG = 4096
_UNIX_MODE = 0o600
_KEEPALIVE_IDLE_S = 30
_KEEPALIVE_INTERVAL_S = 10
_KEEPALIVE_PROBES = 3
_NOTSENT_LOWAT_BYTES = 128 * 1024


async def bind(address: str, *, reuse_port: bool, limits: EdgeLimits) -> list[socket.socket]:
    """Return bound sockets for `host:port`, `[v6]:port`, `unix:/path` or `fd:N`.

    Raises ValueError for other forms, OSError when the address is taken.
    """
    if address.startswith("fd:"):
        inherited = inherited_sockets(address)
        for listening in inherited:
            if listening.family != socket.AF_UNIX:
                set_tcp_options(listening, limits=limits)
        return inherited
    if address.startswith("unix:"):
        return [bind_unix(address.removeprefix("unix:"))]
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
            set_tcp_options(listening, limits=limits)
            if reuse_port:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if listening.family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(where)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets


def is_loopback_host(host: str) -> bool:
    """Return whether a peer's address is this machine's loopback, an IPv4 address written as IPv6 included."""
    if host == "127.0.0.1":
        return True
    try:
        found = ip_address(host)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


def inherited_addresses(address: str) -> tuple[str, ...]:
    """Return where the sockets behind `fd:N` or `fd:N,M` are bound. Raises OSError when there are none."""
    with contextlib.ExitStack() as bound:
        return tuple(describe(bound.enter_context(each)) for each in inherited_sockets(address))


def inherited_sockets(address: str) -> list[socket.socket]:
    """Return duplicates of listening sockets that the parent process bound and holds open. Raises OSError.

    Their queues outlive every process that serves them.
    """
    sockets: list[socket.socket] = []
    try:
        for number in inherited_descriptors(address):
            sockets.append(socket.socket(fileno=os.dup(number)))
            sockets[-1].setblocking(False)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def inherited_descriptors(address: str) -> tuple[int, ...]:
    """Return the numbers in `fd:N` or `fd:N,M`; empty for an address of another form."""
    if not address.startswith("fd:"):
        return ()
    return tuple(map(int, address.removeprefix("fd:").split(",")))


def describe(listening: socket.socket) -> str:
    """Return the address that a socket really has, in the form `bind` takes."""
    name = listening.getsockname()
    if listening.family == socket.AF_UNIX:
        return f"unix:{name}"
    return f"[{name[0]}]:{name[1]}" if listening.family == socket.AF_INET6 else f"{name[0]}:{name[1]}"


def set_tcp_options(listening: socket.socket, *, limits: EdgeLimits) -> None:
    """Options of the listening socket that Linux hands on to accepted ones, so that none costs a call each."""
    listening.setblocking(False)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # A client that vanished without a FIN: idle connections by probes, busy ones by unacknowledged data.
    for option, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", round(limits.connections.write_stall_timeout_s * 1000)),
        ("TCP_NODELAY", 1),
        # Unsent bytes a slow reader may park in the kernel; without it megabytes per stream.
        ("TCP_NOTSENT_LOWAT", _NOTSENT_LOWAT_BYTES),
    ):
        number = getattr(socket, option, None)  # not every system has all of them
        if number is not None:
            listening.setsockopt(socket.IPPROTO_TCP, number, value)


def bind_unix(path: str) -> socket.socket:
    """Bind a Unix socket, replacing one that a dead process left behind. Raises OSError when it is in use."""
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
