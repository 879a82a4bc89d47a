"""Types of a function's arguments, for syntaxes that write each argument as bare text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

_ALL: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_PYTHON_WORDS: Final = {"True": True, "False": False, "None": None}
"""Words that models write for JSON's, because templates render values as Python does."""
_REFERENCES: Final = ("$defs", "definitions")
MAX_DEPTH: Final = 8
"""Depth of references and alternatives that are followed."""


def property_schema(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the schema of one argument, with the definitions that it may refer to; an empty one if it is unknown."""
    properties = schema.get("properties")
    found = properties.get(name) if isinstance(properties, dict) else None
    if not isinstance(found, dict):
        return {}
    return {**{key: schema[key] for key in _REFERENCES if key in schema}, **found}


def types_of(schema: Mapping[str, Any], depth: int = MAX_DEPTH) -> frozenset[str]:
    """Return the JSON types that the schema may allow."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(item for item in kind if isinstance(item, str))
    values = (
        schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else None
    )
    if values is not None:
        return frozenset(map(_type_of, values))
    for keyword in ("anyOf", "oneOf"):
        variants = schema.get(keyword)
        if isinstance(variants, list) and variants and depth:
            shared = {key: schema[key] for key in _REFERENCES if key in schema}
            known = [types_of({**shared, **item}, depth - 1) for item in variants if isinstance(item, dict)]
            return frozenset[str]().union(*known)
    target = _referred(schema)
    return types_of(target, depth - 1) if target is not None and depth else _ALL


def is_text(schema: Mapping[str, Any]) -> bool:
    """Return whether the argument is always a string, which is written without quotes."""
    return types_of(schema) == {"string"}


def json_of(text: str, schema: Mapping[str, Any]) -> str:
    """Return the JSON of an argument written as bare text, by the types that its schema allows."""
    types = types_of(schema)
    if types == {"string"}:
        return encoded_text(text)
    word = text.strip()
    try:
        value = _PYTHON_WORDS[word] if word in _PYTHON_WORDS else msgspec.json.decode(word)
    except (msgspec.MsgspecError, RecursionError):
        return encoded_text(text)
    if "string" in types and isinstance(value, str):
        return encoded_text(text)  # quotes belong to the text
    if "string" in types and not _is_one_of(value, types):
        return encoded_text(text)
    return word if word not in _PYTHON_WORDS else msgspec.json.encode(value).decode()


def encoded_text(text: str) -> str:
    """Return a text as JSON."""
    return msgspec.json.encode(text).decode()


def _is_one_of(value: object, types: frozenset[str]) -> bool:
    kind = _type_of(value)
    return kind in types or (kind == "integer" and "number" in types)


def _referred(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the definition that the schema refers to, with all definitions beside it."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    target: Any = schema
    for part in reference[2:].split("/"):
        target = target.get(part) if isinstance(target, dict) else None
    if not isinstance(target, dict):
        return None
    return {**{key: schema[key] for key in _REFERENCES if key in schema}, **target}


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
