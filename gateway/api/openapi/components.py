"""Schemas of the OpenAPI document, as values that encode to JSON, and references to them."""

from __future__ import annotations

from typing import Any, Final

REF: Final = "#/components/schemas/{name}"


Schema = dict[str, Any]


def ref(kind: type) -> Schema:
    """Return a reference to the schema of a struct."""
    return {"$ref": REF.format(name=kind.__name__)}
