"""Checks of the clients' JSON schemas before their compilation."""

from __future__ import annotations

import json
from typing import Any

from engine.frontend.request.errors import invalid_value
from engine.frontend.request.number_bounds import exact_bounds
from engine.frontend.request.schema_nodes import DATA_KEYWORDS, Node, map_schema, reached_nodes
from engine.frontend.schemas.compiler_form import compiler_form

MAX_SCHEMA_BYTES = 256 * 1024
MAX_LITERAL_CHARS = 8192
"""Maximum length of a single text in a schema; a long literal costs time at every token."""

_MAX_SHOWN = 128
"""Maximum length of a value in a message, in characters."""
_UNENFORCED = frozenset(
    {
        *("not", "if", "then", "else", "oneOf", "contains", "minContains", "maxContains", "uniqueItems"),
        *("propertyNames", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
        *("unevaluatedItems", "$dynamicRef", "$recursiveRef"),
    }
)
"""Keywords that the compiler drops from a schema that is not strict (it treats `oneOf` as `anyOf`)."""
_NOTHING: dict[str, tuple[Any, ...]] = {"uniqueItems": (False,), "minContains": (0,)}
"""Values at which a keyword has no effect."""
_FORMATS = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"])
"""Formats that the compiler enforces."""


def check_schema(schema: dict[str, Any], param: str, *, is_strict: bool = False) -> None:
    """Check a schema's size, references, literals and bounds, and what a strict one cannot bind.

    Raises:
        ApiError: The schema is too large, refers to another document, or has what cannot be enforced (400).
    """
    size = len(json.dumps(schema, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_SCHEMA_BYTES:
        raise invalid_value(param, f"`{param}` must have a schema of at most {MAX_SCHEMA_BYTES} bytes; got {size}.")
    pending: list[tuple[Any, bool]] = [(schema, False)]
    while pending:
        value, is_data = pending.pop()
        if isinstance(value, dict):
            for key, child in value.items():
                _check_literal(key, param)
                pending.append((child, is_data or key in DATA_KEYWORDS))
        elif isinstance(value, list):
            pending.extend((child, is_data) for child in value)
        elif isinstance(value, str) and is_data:
            _check_literal(value, param)
    for node in reached_nodes(schema):
        reference = node.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            message = f"`{param}` must refer inside its own schema only (#/...); got $ref {reference[:128]!r}."
            raise invalid_value(param, message)
    compiled_schema(schema, param, is_strict=is_strict)


def compiled_schema(schema: dict[str, Any], param: str, *, is_strict: bool = False) -> dict[str, Any]:
    """Return the schema in the form for the compiler.

    Raises:
        ApiError: A bound cannot be enforced, or a strict schema has another keyword that cannot (400).
    """

    def compiled(node: Node) -> Node:
        node = {keyword: value for keyword, value in node.items() if _has_effect(keyword, value)}
        changed, unenforced = compiler_form(exact_bounds(node, param), is_strict=is_strict)
        for keyword, reason in unenforced.items() if is_strict else ():
            message = f"`{param}`: {keyword}: this engine cannot enforce {_short(node[keyword])} ({reason})"
            raise invalid_value(param, f"{message}; a strict schema must do without it.")
        return changed

    return map_schema(schema, compiled)


def unenforced_keywords(schema: dict[str, Any]) -> set[str]:
    """Return the keywords of the schema that do not constrain the answer when it is not strict."""
    found: set[str] = set()

    def look(node: dict[str, Any]) -> dict[str, Any]:
        found.update(keyword for keyword in _UNENFORCED & node.keys() if _has_effect(keyword, node[keyword]))
        if isinstance(node.get("format"), str) and node["format"] not in _FORMATS:
            found.add("format")
        found.update(compiler_form(node, is_strict=False)[1])
        return node

    map_schema(schema, look)
    return found


def _has_effect(keyword: str, value: Any) -> bool:
    return value not in _NOTHING.get(keyword, ())


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _check_literal(text: str, param: str) -> None:
    if len(text) > MAX_LITERAL_CHARS:
        raise invalid_value(
            param, f"`{param}` must have no text of over {MAX_LITERAL_CHARS} characters; got {len(text)}."
        )
