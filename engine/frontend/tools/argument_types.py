"""Types of a function's arguments, for syntaxes that write each argument as bare text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from engine.frontend.request.schema_nodes import Node, map_schema, reached_nodes
from engine.frontend.schemas.references import reference_names, referred_value

_ALL: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_PYTHON_WORDS: Final = {"True": True, "False": False, "None": None}
"""Words that models write for JSON's, because templates render values as Python does."""
_REFERENCES: Final = ("$defs", "definitions")
"""Keywords whose members other parts of a schema refer to."""
_ROOT: Final = "(root)"
"""Beginning of the names of definitions that stand for other parts of a function's schema."""
_DEFINED: Final = tuple(f"#/{keyword}/" for keyword in _REFERENCES)
_MAX_DEPTH: Final = 64
"""Depth of references and alternatives that are followed."""


def argument_schemas(schema: Mapping[str, Any]) -> dict[str, Node]:
    """Return the schema of each argument by its name, with the definitions that it may refer to.

    One that accepts anything is empty, and one that accepts nothing is left out.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    if references := _references_to_parts(dict(schema)):
        schema = _with_named_parts(dict(schema), references)
        properties = schema["properties"]
    definitions = {keyword: schema[keyword] for keyword in _REFERENCES if isinstance(schema.get(keyword), dict)}
    known: dict[tuple[str, str], list[tuple[str, str]]] = {}
    return {
        name: {**value, **_reached(value, definitions, known)} if value and isinstance(value, dict) else {}
        for name, value in properties.items()
        if value is not False
    }


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types that the schema may allow."""
    return _types(schema, schema, {}, _MAX_DEPTH)


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


def _references_to_parts(schema: Node) -> set[str]:
    """Return the references of a function's schema to parts of it that are no definitions."""
    found = filter(None, map(_reference_of, reached_nodes(schema)))
    return {ref for ref in found if not ref.startswith(_DEFINED) and referred_value(schema, ref) is not None}


def _with_named_parts(schema: Node, references: set[str]) -> Node:
    """Return a function's schema with a definition for each part that one of the references names."""

    def renamed(node: Node) -> Node:
        return {**node, "$ref": _named(node["$ref"])} if _reference_of(node) in references else node

    root = map_schema(schema, renamed)
    whole = {keyword: value for keyword, value in root.items() if keyword not in _REFERENCES}
    parts = {
        reference_names(_named(reference))[1]: whole if reference == "#" else referred_value(root, reference)
        for reference in references
    }
    definitions = root.get("$defs")
    return {**root, "$defs": {**(definitions if isinstance(definitions, dict) else {}), **parts}}


def _reference_of(node: Node) -> str:
    """Return a schema's reference; empty if it has none."""
    reference = node.get("$ref")
    return reference if isinstance(reference, str) else ""


def _named(reference: str) -> str:
    """Return the reference to the definition that stands for a part of the function's schema."""
    return f"#/$defs/{_ROOT}{reference[1:].replace('~', '~0').replace('/', '~1')}"


def _reached(
    value: Node, definitions: Mapping[str, Node], known: dict[tuple[str, str], list[tuple[str, str]]]
) -> dict[str, Node]:
    """Return the definitions that an argument's schema reaches, by keyword and name.

    Args:
        value: The schema of the argument.
        definitions: All definitions.
        known: What each definition refers to, by its place; completed here.
    """
    found: dict[str, Node] = {}
    pending = list(_referred(value))
    while pending:
        place = keyword, name = pending.pop()
        if name in found.get(keyword, {}) or name not in definitions.get(keyword, {}):
            continue
        found.setdefault(keyword, {})[name] = definitions[keyword][name]
        if place not in known:
            known[place] = list(_referred(definitions[keyword][name]))
        pending += known[place]
    return found


def _referred(schema: Any) -> Iterator[tuple[str, str]]:
    """Iterate over keyword and name of the definitions that a schema refers to itself."""
    pending = [schema]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
            if (reference := _reference_of(value)).startswith(_DEFINED):
                keyword, name, *_ = reference_names(reference)
                yield keyword, name


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
