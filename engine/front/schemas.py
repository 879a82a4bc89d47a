"""JSON schemas of clients: what is refused before anything is compiled."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.front.errors import invalid_value

MAX_SCHEMA_BYTES = 256 * 1024
MAX_LITERAL_CHARS = 8192
"""Longest single text in a schema: long literals cost time at every token."""

_DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values are data: a `$ref` in there is none."""


def check_schema(schema: dict[str, Any], param: str) -> None:
    """Raise ApiError (400) for a schema too large or with references that would have to be fetched."""
    size = len(msgspec.json.encode(schema))
    if size > MAX_SCHEMA_BYTES:
        raise invalid_value(param, f"{param}: the schema's {size} bytes exceed the limit of {MAX_SCHEMA_BYTES}.")
    pending: list[tuple[Any, bool]] = [(schema, False)]
    while pending:
        value, is_data = pending.pop()
        if isinstance(value, dict):
            reference = value.get("$ref")
            if not is_data and isinstance(reference, str) and not reference.startswith("#"):
                message = f"{param}: $ref {reference[:128]!r}: only references inside the schema (#/...) are served."
                raise invalid_value(param, message)
            for key, child in value.items():
                _check_literal(key, param)
                pending.append((child, is_data or key in _DATA_KEYWORDS))
        elif isinstance(value, list):
            pending.extend((child, is_data) for child in value)
        elif isinstance(value, str) and is_data:
            _check_literal(value, param)


def _check_literal(text: str, param: str) -> None:
    if len(text) > MAX_LITERAL_CHARS:
        raise invalid_value(
            param, f"{param}: a text of {len(text)} characters exceeds the limit of {MAX_LITERAL_CHARS}."
        )
