"""Panels as values, and the JSON that Grafana's file provisioning takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Unit = Literal["s", "short", "percentunit", "reqps", "ops", "bytes"]
Kind = Literal["timeseries", "stat", "table", "heatmap"]

COLUMNS: Final = 24
_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA_VERSION: Final = 39


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and how its series are called, such as `{{lane}}`."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture; `help` says what to do about what it shows."""

    title: str
    queries: Sequence[Query]
    help: str
    unit: Unit = "short"
    kind: Kind = "timeseries"
    width: int = 8
    is_stacked: bool = False
    limit: float | None = None
    """A line at this value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A page of panels, laid out row by row in the order written."""

    uid: str
    title: str
    panels: Sequence[Panel]

    def as_json(self) -> dict[str, Any]:
        """The document of Grafana's dashboard API."""
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["penstock"],
            "schemaVersion": _SCHEMA_VERSION,
            "editable": False,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "links": [
                {"type": "dashboards", "tags": ["penstock"], "asDropdown": False, "includeVars": True, "keepTime": True}
            ],
            "templating": {
                "list": [{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
            },
            "panels": _laid_out(self.panels),
        }


def _laid_out(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    x, y = 0, 0
    documents = []
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > COLUMNS:
            x, y = 0, y + _HEIGHT
        documents.append(_panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": _HEIGHT}))
        x += panel.width
    return documents


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 30 if panel.is_stacked else 0, "showPoints": "never"}
        if panel.is_stacked:
            custom["stacking"] = {"mode": "normal", "group": "A"}
        if panel.limit is not None:
            custom["thresholdsStyle"] = {"mode": "line"}
        defaults["custom"] = custom
    if panel.limit is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.limit}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [_target(panel, query, index) for index, query in enumerate(panel.queries)],
    }


def _target(panel: Panel, query: Query, index: int) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + index),
        "datasource": _SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": panel.kind == "table",
        "format": {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series"),
    }
