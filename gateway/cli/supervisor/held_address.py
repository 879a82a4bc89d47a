"""HeldAddress: listening sockets that outlive their process, so that its restart refuses no connection."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gateway.http.address import BACKLOG, bind_unix, describe, inherited_sockets


class AddressError(RuntimeError):
    """An address cannot be listened on; the message has the cause and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAddress:
    """Open sockets: connections wait in their queues while no process serves them; `close` releases the address."""

    shown: str
    """The address for people and clients, with the port that the system chose."""
    sockets: tuple[socket.socket, ...]
    tls_cert: Path | None = None
    """Certificate of an address that speaks TLS; None for plain HTTP."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Numbers of the sockets, for a child to inherit."""
        return tuple(each.fileno() for each in self.sockets)

    @property
    def inherited(self) -> str:
        """The address in the form for a child that inherits the sockets."""
        return "fd:" + ",".join(map(str, self.descriptors))

    def close(self) -> None:
        """Connections are refused from now on, unless another process still listens."""
        for each in self.sockets:
            each.close()


def hold_address(address: str, flag: str, *, is_shared: bool = False) -> HeldAddress:
    """Listen on an address; `flag` chooses another in errors, `is_shared` lets other processes have its port too.

    Raises AddressError when it is taken or not of this machine.
    """
    try:
        if address.startswith("fd:"):
            sockets = tuple(inherited_sockets(address))
            return HeldAddress(shown=describe(sockets[0]), sockets=sockets)
        if address.startswith("unix:"):
            held = HeldAddress(shown=address, sockets=(bind_unix(address.removeprefix("unix:")),))
        else:
            held = _hold_port(address, is_shared)
        for each in held.sockets:
            each.listen(BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressError(f"{address} is already in use; stop what listens there or choose {flag} N") from error
        raise AddressError(f"cannot listen on {address}: {error.strerror or error}; choose another address") from error
    return held


def _hold_port(address: str, is_shared: bool) -> HeldAddress:
    """Bind every address of a name to one port; raises OSError."""
    host, _, text = address.rpartition(":")
    name, port = host.removeprefix("[").removesuffix("]"), int(text)
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with ExitStack() as bound:
        sockets: list[socket.socket] = []
        for family, kind, protocol, _, where in dict.fromkeys(found):
            each = bound.enter_context(socket.socket(family, kind, protocol))
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind((where[0], port, *where[2:]))
            port = each.getsockname()[1]
            sockets.append(each)
        bound.pop_all()
    return HeldAddress(shown=f"{host}:{port}", sockets=tuple(sockets))
