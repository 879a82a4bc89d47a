"""Construct the client of one deployment: its pool, its resolver, its connector."""

from __future__ import annotations

import ssl as ssl_module
import time
from typing import Any, Final

from gateway.routing.snapshot import Connect
from gateway.timeline import Clock
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import ConnectionPool, PoolLimits
from gateway.upstreams.reach import UpstreamReach

_POOL_LIMITS: Final = PoolLimits(max_connections=200_000)
"""Limits of other pools: permits bound the concurrency; a pool only has to be larger, also after a raised limit."""

_LOCAL_POOL_LIMITS: Final = PoolLimits(max_connections=200_000, idle_s=50.0)
"""Limits for Unix sockets: most often a bundled engine listens there, which holds connections open for 75 s."""


def open_upstream(
    target: Target,
    *,
    limits: PoolLimits,
    clock: Clock = time.monotonic,
    ssl: ssl_module.SSLContext | None = None,
    **options: Any,
) -> UpstreamClient:
    """Return a client of one target; `options` are further ones of UpstreamClient."""
    return UpstreamClient(target, ConnectionPool(str(target), limits, clock), clock=clock, ssl=ssl, **options)


def connector_of(clock: Clock) -> Connect:
    """Return what makes the client of each deployment of a policy."""

    def connect(deployment: str, reach: UpstreamReach) -> UpstreamClient:
        limits = _LOCAL_POOL_LIMITS if reach.target.socket_path is not None else _POOL_LIMITS
        return open_upstream(reach.target, limits=limits, clock=clock, ssl=reach.tls, proxy=reach.proxy)

    return connect
