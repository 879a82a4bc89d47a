"""Every query of dashboards, rules and scaler against the metrics that gateway and engine really give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.frontend.core_client.metrics import EngineMetrics
from gateway.telemetry.instruments import MetricFamily
from gateway.telemetry.metrics import GatewayMetrics
from tests.deploy.promql import all_queries, keeps, reads, rule_queries
from tests.e2e.conftest import Stack
from tests.e2e.engine import engine_client
from tests.e2e.raw import chat, request, send_raw

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def live(stack: Stack) -> dict[str, set[str]]:
    """Labels by the name of every series that can be requested."""
    send_raw(stack.url, request(chat(stream=True, max_tokens=4)))
    with engine_client(stack) as client:
        client.post("/v1/chat/completions", json=chat(model="penstock-small", max_tokens=4))
        texts = [httpx.get(f"{stack.admin_url}/metrics", timeout=30.0).text, client.get("/metrics").text]
    known = declared()
    found: dict[str, set[str]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
            labels = {label for sample in family.samples for label in sample.labels}
            for end in ends:
                found[family.name + end] = labels or known.get(family.name.removesuffix("_total"), set())
    return found


def declared() -> Mapping[str, set[str]]:
    """Labels of the families that nothing was counted in yet."""
    instruments = GatewayMetrics().instruments
    families: list[MetricFamily[Any]] = [*instruments.counters, *instruments.gauges, *instruments.histograms]
    ours = {family.name.removesuffix("_total"): set(family.label_names) for family in families}
    registry = EngineMetrics().registry
    engines = {
        name: set(getattr(collector, "_labelnames", ())) for name, collector in registry._names_to_collectors.items()
    }
    return {**engines, **ours}


def test_every_query_reads_series_that_exist_by_labels_that_they_have(live: dict[str, set[str]]) -> None:
    recorded = {name: keeps(expr) for name, expr in rule_queries() if ":" in name}
    known = {**live, **recorded}
    offences = []
    for where, expr in all_queries():
        for metric, labels in reads(expr).items():
            if metric not in known:
                offences.append(f"{where}: there is no {metric}")
            elif not labels <= known[metric]:
                offences.append(f"{where}: {metric} has no label {', '.join(sorted(labels - known[metric]))}")
    assert offences == []
