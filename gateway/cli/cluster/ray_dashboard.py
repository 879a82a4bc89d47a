"""RayDashboard: deploys a Serve application by the REST API of a Ray cluster's dashboard."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import httpx
import msgspec

from gateway.cli.cluster.serve_document import ServeDetails, serve_document

PATH: Final = "/api/serve/applications/"
_POLL_S: Final = 2.0
_TIMEOUT_S: Final = 30.0
_FAILED: Final = frozenset({"DEPLOY_FAILED", "UNHEALTHY"})


class RayDeployError(RuntimeError):
    """The application could not be deployed; the message has the cause."""


class RayDashboard:
    """The dashboard of one cluster."""

    def __init__(
        self,
        url: str,
        *,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url
        self._client = httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False, transport=transport)
        self._clock = clock
        self._sleep = sleep

    def submit(self, own: dict[str, Any], *, port: int) -> None:
        """Send the application with those that the cluster has; raises RayDeployError."""
        self._send("PUT", serve_document(self._details(), own, port=port))

    def wait_until_running(self, name: str, limit_s: float) -> None:
        """Wait until an application runs; raises RayDeployError when it fails or takes too long."""
        ends_at = self._clock() + limit_s
        while True:
            found = self._details().applications.get(name)
            status = "" if found is None else found.status
            if status == "RUNNING":
                return
            if status in _FAILED:
                message = "" if found is None else found.message.strip()[-1000:]
                raise RayDeployError(f"{name}: {status}: {message or 'the dashboard has the reason'}")
            if self._clock() >= ends_at:
                raise RayDeployError(f"{name} does not run after {limit_s:g} s (status {status or 'unknown'})")
            self._sleep(_POLL_S)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _details(self) -> ServeDetails:
        try:
            return msgspec.json.decode(self._send("GET", None), type=ServeDetails)
        except msgspec.DecodeError as error:
            raise RayDeployError(f"{self._url}: no Ray dashboard answers there ({error})") from error

    def _send(self, method: str, document: dict[str, Any] | None) -> bytes:
        try:
            response = self._client.request(method, PATH, json=document)
        except httpx.HTTPError as error:
            raise RayDeployError(f"{self._url}: {error}; check --dashboard") from error
        if response.status_code != 200:
            raise RayDeployError(f"{self._url}: status {response.status_code}: {response.text[:500]}")
        return response.content
