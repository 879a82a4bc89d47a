"""SourceOpener: from a source's key to what reads it, with the settings of this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gateway.config.discovery import DiscoverySettings
from gateway.discovery.dns_source import DnsClient, DnsSource
from gateway.discovery.source import MemberSource
from gateway.discovery.store_list import StoreList
from gateway.store.base import Store
from routing_policies.policy.deployment import MemberSourceKey

if TYPE_CHECKING:
    import httpx

    from gateway.discovery.kubernetes.api_server import KubernetesApi

_RAY_TIMEOUT_S = 5.0


class SourceOpener:
    """Sources share one client of the Kubernetes API and one of Ray dashboards, made at first use."""

    def __init__(self, settings: DiscoverySettings, environment: Mapping[str, str], store: Store) -> None:
        self._settings = settings
        self._environment = environment
        self._store = store
        self._kubernetes: KubernetesApi | None = None
        self._ray: httpx.AsyncClient | None = None

    def __call__(self, key: MemberSourceKey) -> MemberSource:
        """Return the source of this kind and name; raises SourceError when this process cannot read it."""
        kind, name, port = key
        # An HTTP client takes its time to import, and most gateways have none of these sources.
        if kind == "kubernetes":
            from gateway.discovery.kubernetes.watch import EndpointSliceWatch

            return EndpointSliceWatch(name, port, self._api())
        if kind == "list":
            return StoreList(name, self._store)
        if kind == "ray":
            import httpx

            from gateway.discovery.ray_proxies import RayProxies

            self._ray = self._ray or httpx.AsyncClient(timeout=_RAY_TIMEOUT_S, trust_env=False)
            return RayProxies(name, self._ray)
        return DnsSource(name, port if isinstance(port, int) else None, DnsClient(self._settings.dns_server))

    async def aclose(self) -> None:
        """Close the clients."""
        if self._kubernetes is not None:
            await self._kubernetes.client.aclose()
        if self._ray is not None:
            await self._ray.aclose()

    def _api(self) -> KubernetesApi:
        if self._kubernetes is None:
            from gateway.discovery.kubernetes.api_server import KubernetesAccess, KubernetesApi

            settings = self._settings
            access = KubernetesAccess.of(
                self._environment,
                url=settings.kubernetes_url,
                token_file=settings.kubernetes_token_file,
                ca_file=settings.kubernetes_ca_file,
            )
            self._kubernetes = KubernetesApi(access)
        return self._kubernetes
