"""Probes: is the loop alive, can requests be served, has the start finished, which version is it."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.application import ApiResponse
from gateway.errors import ErrorType, GatewayError
from gateway.http.address import is_loopback_host
from gateway.routing.snapshot import PolicySnapshot
from gateway.util.version import version


class NotReady(GatewayError):
    """503 of a probe; the message lists what is missing."""

    status = 503
    type: ErrorType = "service_unavailable_error"
    code = "not_ready"


class Probes:
    """`/livez`, `/readyz`, `/startupz`, `/health` and `/version`, the same on both listeners."""

    def __init__(self, policy: Callable[[], PolicySnapshot | None], is_draining: Callable[[], bool]) -> None:
        self._policy = policy
        self._is_draining = is_draining
        self._has_started = False
        self._version = version()

    def missing(self) -> list[str]:
        """Return the reasons why requests cannot be served now; empty when they can."""
        snapshot = self._policy()
        reasons = []
        if self._is_draining():
            reasons.append("draining")
        if snapshot is None:
            reasons.append("no policy is loaded")
        elif not snapshot.is_servable:
            reasons.append(f"none of {len(snapshot.serving)} deployments is ready")
        return reasons

    def routes(self) -> list[Route]:
        """Return the probes' routes."""
        return [
            Route("/livez", self.livez),
            Route("/readyz", self.readyz),
            Route("/startupz", self.startupz),
            Route("/health", self.readyz),
            Route("/version", self.version),
        ]

    async def livez(self, request: Request) -> Response:
        """Answer 200 while the event loop runs."""
        return ApiResponse({"status": "live"})

    async def readyz(self, request: Request) -> Response:
        """Policy loaded, one deployment ready, not draining; else NotReady."""
        missing = self.missing()
        if missing:
            raise NotReady(f"Not ready: {', '.join(missing)}.")
        return ApiResponse({"status": "ready", **self._state(request)})

    async def startupz(self, request: Request) -> Response:
        """Answer as readyz until it was ready once; after that always 200."""
        missing = self.missing()
        self._has_started = self._has_started or not missing
        if not self._has_started:
            raise NotReady(f"Still starting: {', '.join(missing)}.")
        return ApiResponse({"status": "started", **self._state(request)})

    async def version(self, request: Request) -> Response:
        """Return the installed version of this package."""
        return ApiResponse({"version": self._version})

    def _state(self, request: Request) -> dict[str, object]:
        """Report more to this machine; names of deployments are not for strangers."""
        client = request.client
        if client and client.host and not is_loopback_host(client.host):
            return {}
        snapshot = self._policy()
        if snapshot is None:
            return {"policy": None, "deployments": {}}
        return {
            "policy": snapshot.revision,
            "deployments": {live.id: live.is_ready for live in snapshot.deployments.values()},
        }
