"""LocalPeers: recognition of admin requests that come from this machine, and of pages that may send them.

A request counts as local under three conditions. The connection comes from this machine, no proxy forwarded it, and
its Host names this machine. A foreign page whose name resolves to this machine (DNS rebinding) still sends its own
name.
With `admin.allow_remote`, no request counts as local: behind a sidecar or a published port, every client has an address
of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gateway.http.address import is_loopback_host
from gateway.http.asgi import Scope, find_header

_LOCAL_NAMES: Final = re.compile(rb"(?i)(localhost|[0-9.]+|\[[0-9a-f:.]+\])(:[0-9]+)?")
_FORWARDED: Final = frozenset(
    {
        *(b"forwarded", b"via", b"x-forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"),
        *(b"x-forwarded-port", b"x-forwarded-server", b"x-forwarded-client-cert", b"x-real-ip", b"x-client-ip"),
        *(b"x-original-forwarded-for", b"x-envoy-external-address", b"x-envoy-peer-metadata", b"true-client-ip"),
        *(b"cf-connecting-ip", b"fastly-client-ip", b"x-cluster-client-ip", b"x-amzn-trace-id"),
    }
)
"""Headers that proxies add; a program on this machine that calls directly sends none."""


class LocalPeers:
    """Origin checks of the admin listener."""

    def __init__(self, *, is_socket: bool, allows_remote: bool, own_hosts: Iterable[bytes] = ()) -> None:
        """Configure the checks.

        Args:
            is_socket: True for a Unix socket, which no web page can call.
            allows_remote: True if the listener serves other machines.
            own_hosts: Further host names of the listener.
        """
        self._is_socket = is_socket
        self._allows_remote = allows_remote
        self._own_hosts = frozenset(host.lower() for host in own_hosts if host)

    def is_local(self, scope: Scope) -> bool:
        """Return whether a program on this machine sent the request itself."""
        if self._allows_remote or any(name in _FORWARDED for name, _ in scope["headers"]):
            return False
        if self._is_socket:
            return True
        client, host = scope.get("client"), find_header(scope, b"host")
        if not client or host is None:
            return False
        return is_loopback_host(client[0]) and _LOCAL_NAMES.fullmatch(host) is not None

    def is_own_host(self, host: bytes | None) -> bool:
        """Return whether `host` names the listener; behind a proxy or a socket every name does."""
        if self._is_socket or self._allows_remote or host is None:
            return True
        return _LOCAL_NAMES.fullmatch(host) is not None or host.lower() in self._own_hosts

    def is_own_origin(self, origin: bytes, host: bytes | None) -> bool:
        """Return whether the Origin header names a page of this listener."""
        named = origin.partition(b"://")[2].lower()
        return bool(named) and (named == (host or b"").lower() or named in self._own_hosts)
