"""Traversal of a JSON schema's subschemas, as opposed to names of properties and to data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from engine.frontend.schemas.references import referred_value

DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values are data and contain no keywords."""
_MAPS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies", "dependentRequired"}
)
"""Keywords whose members are schemas under names that the client chooses."""
_SCHEMAS = frozenset(
    {
        *("items", "additionalItems", "prefixItems", "contains", "unevaluatedItems", "additionalProperties"),
        *("propertyNames", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
        "contentSchema",
    }
)
"""Keywords whose value is a schema or a list of schemas."""

Node = dict[str, Any]


def map_schema(schema: Node, change: Callable[[Node], Node]) -> Node:
    """Return the schema with `change` applied to every schema in it, the innermost first.

    Unknown keywords are included, because references may point into them (`#/components/schemas/…`).
    """
    return change({keyword: _mapped(keyword, value, change) for keyword, value in schema.items()})


def reached_nodes(schema: Node) -> Iterator[Node]:
    """Iterate over the schemas that may constrain a value: those under known keywords, and those referred to."""
    pending: list[Any] = [schema]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        if not isinstance(node, dict) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        for keyword, value in node.items():
            if keyword in _SCHEMAS:
                pending.append(value)
            elif keyword in _MAPS and isinstance(value, dict):
                pending.extend(value.values())
        if isinstance(node.get("$ref"), str):
            pending.append(referred_value(schema, node["$ref"]))


def _mapped(keyword: str, value: Any, change: Callable[[Node], Node]) -> Any:
    if keyword in DATA_KEYWORDS:
        return value
    if isinstance(value, list):
        return [map_schema(item, change) if isinstance(item, dict) else item for item in value]
    if not isinstance(value, dict):
        return value
    if keyword not in _MAPS:
        return map_schema(value, change)
    return {
        name: map_schema(child, change) if isinstance(child, dict) else child
        for name, child in value.items()
        if child is not None
    }
