"""The page of metrics: every family that gateway and engine declare."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from prometheus_client.metrics import MetricWrapperBase

from engine.frontend.core_client.link import CoreLink
from engine.frontend.core_client.metrics import EngineMetrics
from engine.protocol import Counters, Load
from gateway.telemetry.instruments import MetricFamily
from gateway.telemetry.metrics import GatewayMetrics
from tests.docs.reference.markdown import code, codes, page, section, table

_INTRODUCTION = """
`GET /metrics` on the gateway's admin listener and on an engine. Times are in seconds; histograms reach from 0.1 ms to
120 s. The label `tenant` has the policy's tenants, `dev` without keys, and `other`.
[Dashboards and alerts](../deploy.md).
"""
_HEADER = ("metric", "type", "labels", "meaning")


def metrics_page() -> str:
    """Return the page."""
    return page(
        "Metrics",
        _INTRODUCTION,
        section("Gateway", table(_HEADER, sorted(_gateway()))),
        section("Engine", table(_HEADER, sorted(_engine()))),
    )


def _gateway() -> Iterator[tuple[str, str, str, str]]:
    made = GatewayMetrics().instruments
    kinds: tuple[tuple[str, list[MetricFamily[object]]], ...] = (
        ("counter", cast(list[MetricFamily[object]], made.counters)),
        ("gauge", cast(list[MetricFamily[object]], made.gauges)),
        ("histogram", cast(list[MetricFamily[object]], made.histograms)),
    )
    for kind, families in kinds:
        for family in families:
            yield code(family.name), kind, codes(family.label_names), family.help


def _engine() -> Iterator[tuple[str, str, str, str]]:
    metrics = EngineMetrics()
    idle: dict[str, Any] = {field.name: 0 for field in msgspec.structs.fields(Load) if field.required}
    no_adapters = SimpleNamespace(names=[])
    link = SimpleNamespace(load=Load(**idle), ready=None, state="starting", counters=Counters(), adapters=no_adapters)
    metrics.expose_core(cast(CoreLink, link))
    collectors = metrics.registry._collector_to_names
    labels = {each._name: each._labelnames for each in collectors if isinstance(each, MetricWrapperBase)}
    for metric in metrics.registry.collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        yield code(name), metric.type, codes(labels.get(metric.name, ())), metric.documentation
