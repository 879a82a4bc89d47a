"""Removal of null and empty members from a request, at every depth, before its validation.

SDKs replay whole answers and whole option objects with null or an empty value for each unset field.
"""

from __future__ import annotations

from typing import Any

from engine.frontend.request.schema_nodes import map_schema

_VERBATIM = frozenset({"messages", "prompt", "model"})
"""Required members of a body. An empty one is an error that validation must report, so it stays."""
_SCHEMAS = frozenset({"parameters", "schema"})
_VALUES = frozenset({"const", "default", "examples"})
"""Keywords of a schema that may hold any value, null included."""


def without_absent(document: dict[str, Any]) -> dict[str, Any]:
    """Return the body without its null and empty members, those of its messages and tools included.

    Lists keep all their elements, so that a fault found later is still named by the client's own index.
    """
    cleaned: dict[str, Any] = {}
    for name, value in document.items():
        if name == "messages" and isinstance(value, list):
            cleaned[name] = [_cleaned(item) for item in value]
        elif name in _VERBATIM:
            cleaned[name] = value
        elif not _is_absent(retained := _cleaned(value)):
            cleaned[name] = retained
    return cleaned


def schema_without_absent(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without empty keywords; `{}` is a schema, and `const` may be null."""
    return map_schema(schema, _node_without_absent)


def _cleaned(value: Any) -> Any:
    if isinstance(value, list):
        return [_cleaned(item) if isinstance(item, dict | list) else item for item in value]
    if not isinstance(value, dict):
        return value
    cleaned: dict[str, Any] = {}
    for name, child in value.items():
        if name in _SCHEMAS and isinstance(child, dict):
            retained = schema_without_absent(child)
        else:
            retained = _cleaned(child) if isinstance(child, dict | list) else child
        if not _is_absent(retained) or (retained is not None and _is_subject(name, retained, value)):
            cleaned[name] = retained
    return cleaned


def _is_subject(name: str, empty: Any, parent: dict[str, Any]) -> bool:
    """Return whether an empty member is significant in `parent`.

    A message may have empty content, and `type: function` may name an empty function.
    """
    return name == parent.get("type") or (name == "content" and "role" in parent and isinstance(empty, str | list))


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _node_without_absent(node: dict[str, Any]) -> dict[str, Any]:
    return {
        keyword: value
        for keyword, value in node.items()
        if keyword in _VALUES or isinstance(value, dict) or not _is_absent(value)
    }
