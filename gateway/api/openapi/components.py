"""Schemas of the OpenAPI document, as values that encode to JSON, and references to them."""

from __future__ import annotations

from typing import Any, Final

from gateway.chat.fields.table import PRIVILEGED_FIELDS

REF: Final = "#/components/schemas/{name}"
Schema = dict[str, Any]
ABSENT: Final[Schema] = {"$ref": REF.format(name="Absent")}
"""Null or empty, which is as good as absent."""


def forbid_privileged(request: Schema) -> None:
    """State that a request has none of the fields that only the operator sets."""
    request["not"] = {"anyOf": [{"required": [name]} for name in sorted(PRIVILEGED_FIELDS)]}


def ref(kind: type) -> Schema:
    """Return a reference to the schema of a struct."""
    return {"$ref": REF.format(name=kind.__name__)}
