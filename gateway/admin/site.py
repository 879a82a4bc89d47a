"""The admin listener's endpoints: metrics, the API's description, probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from gateway.admin.context import AdminContext
from gateway.admin.handlers.cache import PURGE_PATH, CacheHandlers
from gateway.admin.handlers.diagnosis import DIAGNOSIS_PATH, DiagnosisHandlers
from gateway.api.health import Probes
from gateway.api.openapi import openapi_document
from gateway.api.routes import SiteMap, SmallResponse
from gateway.http.asgi import Scope
from gateway.telemetry.metrics import GatewayMetrics

METRICS_PATH: Final = "/metrics"
_METRICS_TYPE: Final = (b"content-type", CONTENT_TYPE_PLAIN_0_0_4.encode("ascii"))


class Operations:
    """What operators read."""

    def __init__(self, metrics: GatewayMetrics, needs_key: Callable[[], bool]) -> None:
        self._metrics = metrics
        self._needs_key = needs_key
        self._documents = {flag: SmallResponse.json(openapi_document(needs_key=flag)) for flag in (False, True)}

    async def metrics(self, scope: Scope) -> SmallResponse:
        """Prometheus' text format."""
        return SmallResponse(headers=(_METRICS_TYPE,), body=self._metrics.instruments.render())

    async def openapi(self, scope: Scope) -> SmallResponse:
        """The public API as OpenAPI 3.1, under the policy in force."""
        return self._documents[self._needs_key()]


def admin_map(
    operations: Operations, probes: Probes, cache: CacheHandlers, room: AdminContext, diagnosis: DiagnosisHandlers
) -> SiteMap:
    """Where the admin listener's endpoints are."""
    own = SiteMap(
        get={
            METRICS_PATH: operations.metrics,
            "/openapi.json": operations.openapi,
            "/livez": probes.livez,
            "/readyz": probes.readyz,
            "/startupz": probes.startupz,
            DIAGNOSIS_PATH: diagnosis.show,
        },
        submit={PURGE_PATH: cache.purge},
    )
    return own.with_more(room.site_map())
