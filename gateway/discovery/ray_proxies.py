"""RayProxies: members by the dashboard of a Ray cluster: its Serve proxies, one on each node with replicas."""

from __future__ import annotations

import asyncio
from typing import Final

import httpx
import msgspec

from gateway.discovery.http_json import fetch_json
from gateway.discovery.source import Listing, Pause, SourceError, poll, take_usable
from routing_policies.policy.members import Address

LOOK_S: Final = 2.0
_PATH: Final = "/api/serve/applications/"
_HEALTHY: Final = "HEALTHY"
"""Status of a proxy that takes requests; one that drains has another."""


class _Proxy(msgspec.Struct, frozen=True):
    status: str
    node_ip: str | None = None


class _HttpOptions(msgspec.Struct, frozen=True):
    port: int = 8000


class _ServeDetails(msgspec.Struct, frozen=True):
    """The part of `GET /api/serve/applications/` that names the proxies."""

    proxies: dict[str, _Proxy] = {}
    http_options: _HttpOptions | None = None

    def members(self) -> list[Address]:
        """Return the addresses of the healthy proxies."""
        port = (self.http_options or _HttpOptions()).port
        return [Address(one.node_ip, port) for one in self.proxies.values() if one.status == _HEALTHY and one.node_ip]


class RayProxies:
    """Members of one Ray cluster."""

    def __init__(self, dashboard: str, client: httpx.AsyncClient, *, pause: Pause = asyncio.sleep) -> None:
        self._url = dashboard.rstrip("/") + _PATH
        self._client = client
        self._pause = pause

    async def follow(self, listing: Listing) -> None:
        """Poll the dashboard for ever; ends by cancellation."""

        async def once() -> float:
            request = self._client.build_request("GET", self._url)
            found = await fetch_json(self._client, request, _ServeDetails)
            if not found.proxies:  # Serve is not running, or its controller starts anew
                raise SourceError("Serve runs no proxy on this cluster")
            take_usable(listing, found.members())
            return LOOK_S

        await poll(once, listing, self._pause)
