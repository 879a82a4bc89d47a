"""SourceRate: a rate limit for each source address on actions that need no login."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final

from gateway.http.asgi import Scope

MAX_SOURCES: Final = 4096
LOCAL: Final = "local"
_IPV6_PREFIX_BITS: Final = 64
"""Prefix length of the IPv6 network that one customer usually has."""


class SourceRate:
    """Token bucket for each source; beyond `max_sources` the least recently seen one is dropped."""

    def __init__(self, *, burst: int, per_s: float, clock: Callable[[], float], max_sources: int = MAX_SOURCES) -> None:
        self._burst = burst
        self._per_s = per_s
        self._clock = clock
        self._max_sources = max_sources
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tokens left and the instant of that count, by source."""

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, source: str) -> float:
        """Take one token and return 0, or return the seconds until one is available."""
        now = self._clock()
        tokens, at = self._buckets.pop(source, (float(self._burst), now))
        tokens = min(tokens + max(now - at, 0.0) * self._per_s, float(self._burst))
        is_allowed = tokens >= 1.0
        self._buckets[source] = (tokens - 1.0 if is_allowed else tokens, now)
        if len(self._buckets) > self._max_sources:
            self._buckets.popitem(last=False)
        return 0.0 if is_allowed else (1.0 - tokens) / self._per_s


def source_of(scope: Scope) -> str:
    """Return the peer's address, for IPv6 its /64 network, or `local` behind a Unix socket.

    Proxy headers are not read, because any client can write them.
    """
    client = scope.get("client")
    if not client or not client[0]:
        return LOCAL
    host = str(client[0])
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{IPv6Address(int(found) >> _IPV6_PREFIX_BITS << _IPV6_PREFIX_BITS)}/{_IPV6_PREFIX_BITS}"
