"""Construct the client of one deployment: its pool, its resolver, its connector."""

from __future__ import annotations

import ssl as ssl_module
import time
from collections.abc import Mapping
from typing import Any, Final

from gateway.routing.snapshot import Connect
from gateway.timeline import Clock
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.connector import Join
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


def connector_of(clock: Clock, builtin: Mapping[str, Join] | None = None) -> Connect:
    """Return what makes the client of each deployment of a policy; `builtin` has the applications in this process."""
    joins = builtin or {}

    def connect(deployment: str, reach: UpstreamReach) -> UpstreamClient:
        target = reach.target
        is_local = target.socket_path is not None or target.is_builtin
        limits = _LOCAL_POOL_LIMITS if is_local else _POOL_LIMITS
        proxy = joins.get(target.host) if target.is_builtin else reach.proxy
        return open_upstream(target, limits=limits, clock=clock, ssl=reach.tls, proxy=proxy)

    return connect
