"""What a PromQL expression reads: metric names, and the labels it expects of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
_ADDED_BY_SCRAPE = {"instance", "job", "le"}
_WINDOW = "$__rate_interval"


def parse(expr: str) -> Any:
    """The expression's tree. Raises ValueError."""
    return promql.parse(expr.replace(_WINDOW, "5m"))


def reads(expr: str) -> dict[str, set[str]]:
    """Labels by metric name: those that select, and those that an aggregation over it keeps."""
    found: dict[str, set[str]] = {}
    for name, labels in _walk(parse(expr), frozenset()):
        found.setdefault(name, set()).update(labels - _ADDED_BY_SCRAPE)
    return found


def _walk(node: Any, stored: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    kind = type(node).__name__
    if kind == "VectorSelector":
        yield node.name, stored | {matcher.name for matcher in node.matchers.matchers}
    elif kind in ("MatrixSelector", "SubqueryExpr"):
        yield from _walk(node.vector_selector if kind == "MatrixSelector" else node.expr, stored)
    elif kind == "AggregateExpr":
        by = frozenset(node.modifier.labels) if node.modifier is not None else frozenset[str]()
        yield from _walk(node.expr, by)
    elif kind == "BinaryExpr":
        yield from _walk(node.lhs, stored)
        yield from _walk(node.rhs, stored)
    elif kind == "Call":
        for argument in node.args:
            yield from _walk(argument, stored)
    elif kind in ("ParenExpr", "UnaryExpr"):
        yield from _walk(node.expr, stored)
    else:
        assert kind in ("NumberLiteral", "StringLiteral"), kind


def keeps(expr: str) -> set[str]:
    """The labels of what a recording rule records: those its outermost aggregations keep."""
    return set(_stored(parse(expr))) - _ADDED_BY_SCRAPE


def _stored(node: Any) -> Iterator[str]:
    kind = type(node).__name__
    if kind == "AggregateExpr":
        yield from node.modifier.labels if node.modifier is not None else ()
    for child in {"BinaryExpr": ("lhs", "rhs"), "ParenExpr": ("expr",)}.get(kind, ()):
        yield from _stored(getattr(node, child))
    if kind == "Call":
        for argument in node.args:
            yield from _stored(argument)


def dashboard_queries() -> list[tuple[str, str]]:
    """(where, expression) of every panel that is shipped."""
    return [
        (f"{path.stem}: {panel['title']}", target["expr"])
        for path in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
        for panel in json.loads(path.read_text())["panels"]
        for target in panel["targets"]
    ]


def rules() -> list[dict[str, Any]]:
    """Every recording and alerting rule."""
    return [
        rule
        for name in ("recording", "alerts")
        for group in yaml.safe_load((DEPLOY / "prometheus" / f"{name}.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]


def rule_queries() -> list[tuple[str, str]]:
    """(name, expression) of every rule."""
    return [(rule.get("record") or rule["alert"], rule["expr"]) for rule in rules()]


def scaling_queries() -> list[tuple[str, str]]:
    """(overlay, object and trigger; expression) of what the autoscaler calls."""
    return [
        (f"{path.parent.name} {document['metadata']['name']} {trigger['name']}", trigger["metadata"]["query"])
        for path in sorted((DEPLOY / "kubernetes" / "overlays").glob("*/added.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document["kind"] == "ScaledObject"
        for trigger in document["spec"]["triggers"]
    ]


def all_queries() -> list[tuple[str, str]]:
    """Everything that is required of Prometheus."""
    return [*dashboard_queries(), *rule_queries(), *scaling_queries()]
