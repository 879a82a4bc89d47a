"""Types of a function's arguments, for syntaxes that write each argument as bare text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from engine.frontend.request.schema_nodes import Node, map_schema, reached_nodes
from engine.frontend.schemas.references import referred_value

_ALL: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_PYTHON_WORDS: Final = {"True": True, "False": False, "None": None}
"""Words that models write for JSON's, because templates render values as Python does."""
REFERENCES: Final = ("$defs", "definitions")
"""Keywords whose members other parts of a schema refer to."""
_ROOT: Final = "(root)"
"""Name of the definition that stands for the whole schema of a function."""
_DEFINED: Final = tuple(f"#/{keyword}/" for keyword in REFERENCES)
MAX_DEPTH: Final = 8
"""Depth of references and alternatives that are followed."""


def argument_schemas(schema: Mapping[str, Any]) -> dict[str, Node]:
    """Return the schema of each argument by its name, with the definitions that it may refer to.

    One that accepts anything is empty, and one that accepts nothing is left out.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    if any(_leaves_definitions(node) for node in reached_nodes(dict(schema))):
        root = map_schema(dict(schema), _with_root)
        definitions = root.get("$defs")
        schema = {**root, "$defs": {**(definitions if isinstance(definitions, dict) else {}), _ROOT: root}}
        properties = root["properties"]
    shared = {key: schema[key] for key in REFERENCES if key in schema}
    return {
        name: {**shared, **value} if value and isinstance(value, dict) else {}
        for name, value in properties.items()
        if value is not False
    }


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types that the schema may allow."""
    return _types(schema, schema, {}, MAX_DEPTH)


def _types(node: Any, root: Mapping[str, Any], known: dict[int, frozenset[str]], depth: int) -> frozenset[str]:
    """Return the types of a node; `known` has those of other nodes by their identity, all types for a circle."""
    if not isinstance(node, Mapping) or not depth:
        return _ALL
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = found = _ALL
    kind = node.get("type")
    if isinstance(kind, str | list):
        found = frozenset([kind] if isinstance(kind, str) else (item for item in kind if isinstance(item, str)))
    for values in (node.get("enum"), [node["const"]] if "const" in node else None):
        if isinstance(values, list):
            found = common_types(found, frozenset(map(_type_of, values)))
    for keyword in ("anyOf", "oneOf", "allOf"):
        parts = node.get(keyword)
        if not isinstance(parts, list) or not parts:
            continue
        inner = [_types(part, root, known, depth - 1) for part in parts]
        for types in inner if keyword == "allOf" else [frozenset[str]().union(*inner)]:
            found = common_types(found, types)
    if isinstance(node.get("$ref"), str):
        found = common_types(found, _types(referred_value(root, node["$ref"]), root, known, depth - 1))
    known[id(node)] = found
    return found


def common_types(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    """Return the types that are in both; an integer is a number."""
    both = one & other
    is_integer = "number" not in both and any("integer" in a and "number" in b for a, b in ((one, other), (other, one)))
    return both | {"integer"} if is_integer else both


def is_text(schema: Mapping[str, Any]) -> bool:
    """Return whether the argument is always a string, which is written without quotes."""
    return types_of(schema) == {"string"}


def json_of(text: str, schema: Mapping[str, Any]) -> str:
    """Return the JSON of an argument written as bare text, by the types that its schema allows."""
    return json_as(text, types_of(schema))


def json_as(text: str, types: frozenset[str]) -> str:
    """Return the JSON of bare text that stands for a value of one of the types."""
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


def _leaves_definitions(node: Node) -> bool:
    reference = node.get("$ref")
    return isinstance(reference, str) and reference.split("/")[0] == "#" and not reference.startswith(_DEFINED)


def _with_root(node: Node) -> Node:
    """Return a node whose reference names the function's schema as a definition."""
    return {**node, "$ref": f"#/$defs/{_ROOT}{node['$ref'][1:]}"} if _leaves_definitions(node) else node


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float() if value == value // 1:
            return "integer"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
