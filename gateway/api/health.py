"""Probes: is the loop alive, can requests be served, has the start finished."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.api.routes import SmallResponse
from gateway.errors import ErrorType, GatewayError
from gateway.http.address import is_loopback_host
from gateway.http.asgi import Scope
from gateway.routing.snapshot import PolicySnapshot

PROBE_PATHS: Final = frozenset({"/livez", "/readyz", "/startupz"})


class NotReady(GatewayError):
    """503 of a probe; the message lists what is missing."""

    status = 503
    type: ErrorType = "service_unavailable_error"
    code = "not_ready"


class Probes:
    """`/livez`, `/readyz` and `/startupz`, the same on both listeners."""

    def __init__(self, policy: Callable[[], PolicySnapshot | None], is_draining: Callable[[], bool]) -> None:
        self._policy = policy
        self._is_draining = is_draining
        self._has_started = False

    def missing(self) -> list[str]:
        """Why requests cannot be served now; empty when they can."""
        snapshot = self._policy()
        reasons = []
        if self._is_draining():
            reasons.append("draining")
        if snapshot is None:
            reasons.append("no policy is loaded")
        elif not snapshot.is_servable:
            reasons.append(f"none of {len(snapshot.deployments)} deployments is ready")
        return reasons

    async def livez(self, scope: Scope) -> SmallResponse:
        """The event loop answers."""
        return SmallResponse.json({"status": "live"})

    async def readyz(self, scope: Scope) -> SmallResponse:
        """Policy loaded, one deployment ready, not draining; else NotReady."""
        missing = self.missing()
        if missing:
            raise NotReady(f"Not ready: {', '.join(missing)}.")
        return SmallResponse.json({"status": "ready", **self._state(scope)})

    async def startupz(self, scope: Scope) -> SmallResponse:
        """Like readyz until it was ready once; after that always fine."""
        missing = self.missing()
        self._has_started = self._has_started or not missing
        if not self._has_started:
            raise NotReady(f"Still starting: {', '.join(missing)}.")
        return SmallResponse.json({"status": "started", **self._state(scope)})

    def _state(self, scope: Scope) -> dict[str, object]:
        """Say more to this machine; names of deployments are no stranger's business."""
        client = scope.get("client")
        if client and client[0] and not is_loopback_host(client[0]):
            return {}
        snapshot = self._policy()
        if snapshot is None:
            return {"policy": None, "deployments": {}}
        return {
            "policy": snapshot.revision,
            "deployments": {live.id: live.is_ready for live in snapshot.deployments.values()},
        }
