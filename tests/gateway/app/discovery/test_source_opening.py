"""Which source reads which key, with the settings of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.app.discovery.source_opening import SourceOpener
from gateway.config.discovery import DiscoverySettings
from gateway.discovery.dns_source import DnsSource
from gateway.discovery.kubernetes.watch import EndpointSliceWatch
from gateway.discovery.ray_proxies import RayProxies
from gateway.discovery.source import SourceError
from gateway.discovery.store_list import StoreList
from routing_policies.policy.deployment import MemberSourceKey
from tests.docs.examples.memory_store import MemoryStore


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (("dns", "engine.example", 8000), DnsSource),
        (("srv", "_http._tcp.engine", None), DnsSource),
        (("kubernetes", "llm/engine", "http"), EndpointSliceWatch),
        (("list", "engines", None), StoreList),
        (("ray", "http://head:8265", None), RayProxies),
    ],
)
async def test_each_kind_has_its_source(key: MemberSourceKey, kind: type[object]) -> None:
    opener = SourceOpener(DiscoverySettings(kubernetes_url="http://127.0.0.1:1"), {}, MemoryStore())
    assert isinstance(opener(key), kind)
    await opener.aclose()


async def test_outside_a_cluster_kubernetes_cannot_be_read() -> None:
    opener = SourceOpener(DiscoverySettings(), {}, MemoryStore())
    with pytest.raises(SourceError, match="kubernetes_url"):
        opener(("kubernetes", "llm/engine", None))


async def test_a_pod_without_its_authority_is_a_failure(tmp_path: Path) -> None:
    settings = DiscoverySettings(kubernetes_ca_file=tmp_path / "none")
    opener = SourceOpener(settings, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, MemoryStore())
    with pytest.raises(SourceError, match="authority"):
        opener(("kubernetes", "llm/engine", None))
