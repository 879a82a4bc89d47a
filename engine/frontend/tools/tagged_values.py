"""Values of arguments that stand between tags: a text as it is, everything else as JSON.

A value is bound only if the parser reads back what the grammar lets the model write (see `argument_types.json_as`).
A schema is therefore split into alternatives of one type each. Texts and listed values are written bare; a listed value
that would be read as another is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from engine.frontend.request.number_bounds import MAX_MOST_COUNT
from engine.frontend.schemas.references import referred_value
from engine.frontend.tools.argument_types import common_types, json_as, types_of

_TEXT_KEYWORDS: Final = frozenset({"minLength", "maxLength", "pattern", "format"})
_CONSTRAINTS: Final = _TEXT_KEYWORDS | {
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "items", "prefixItems", "contains"),
    *("additionalItems", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "unevaluatedItems"),
    *("properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties"),
    *("propertyNames", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
    *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
}
"""Keywords that constrain a value, besides `type`, `enum` and `const`."""
_MAX_STEPS: Final = 500
"""Schemas that are looked at for one argument; references could multiply them without end."""

Node = dict[str, Any]


@dataclass(slots=True)
class ValueForm:
    """Everything that may stand between the tags of one argument."""

    choices: list[str] = field(default_factory=list)
    """Single values, as they are written."""
    unwritable: list[Any] = field(default_factory=list)
    """Values of the schema that the parser would read as others."""
    lengths: tuple[int, int | None] | None = None
    """Bounds of a free text in characters; None: no free text."""
    documents: list[Node] = field(default_factory=list)
    """Schemas of values that are written as JSON."""
    unenforced: set[str] = field(default_factory=set)
    """Keywords that the value need not follow."""

    @property
    def is_writable(self) -> bool:
        """True if there is at least one value."""
        return bool(self.choices or self.documents) or self.lengths is not None


def value_form(schema: Node, closing: str) -> ValueForm:
    """Return the form of an argument's value, which ends at the first `closing`."""
    if not schema:
        return ValueForm(lengths=(0, None))
    types = types_of(schema)
    if not types:
        return ValueForm()
    if "string" not in types:
        return ValueForm(documents=[schema])
    alternatives = _alternatives(schema, schema, iter(range(_MAX_STEPS)))
    if alternatives is None:
        return ValueForm(lengths=(0, None), unenforced=set((_CONSTRAINTS | {"enum", "const"}) & schema.keys()))
    form = ValueForm()
    choices: dict[str, None] = {}
    texts: list[Node] = []
    for node in alternatives:
        constraints = _CONSTRAINTS & node.keys()
        if "enum" in node or "const" in node:
            form.unenforced |= constraints - {"minLength", "maxLength"}
            for value in _listed(node):
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                if closing not in text and _plain(json.loads(json_as(text, types))) == _plain(value):
                    choices[text] = None
                else:
                    form.unwritable.append(value)
        elif node["type"] == "string":
            form.unenforced |= constraints - {"minLength", "maxLength"}
            texts.append(node)
        else:
            form.documents.append(node)
    if texts:
        choices |= {"null": None} if any(node["type"] == "null" for node in form.documents) else {}
        _free_text(form, texts, alternatives)
    form.choices = list(choices)
    return form


def _free_text(form: ValueForm, texts: list[Node], alternatives: list[Node]) -> None:
    """Put a free text in the place of all documents: one that reads like another type is read as a value of it.

    Args:
        form: The form, whose documents are complete.
        texts: The alternatives that are free texts.
        alternatives: All alternatives.
    """
    others = [node for node in form.documents if node["type"] != "null"]
    form.documents = []
    for node in others:
        form.unenforced |= (_CONSTRAINTS & node.keys()) - _TEXT_KEYWORDS
    for node in alternatives:
        if "enum" in node or "const" in node:
            values = {_plain(value) for value in _listed(node) if value is not None and not isinstance(value, str)}
            form.unenforced |= set() if values in (set(), {"true", "false"}) else {"enum", "const"} & node.keys()
    form.lengths, is_exact = _joined([_lengths(node) for node in texts])
    if others or not is_exact:
        form.unenforced |= {keyword for node in texts for keyword in ("minLength", "maxLength") if keyword in node}
    if others:  # their values may have any length
        form.lengths = (0, None)


def _alternatives(schema: Node, root: Node, steps: Iterator[int]) -> list[Node] | None:
    """Return schemas of one type each, one of which a value must follow; None if there is no such list.

    Args:
        schema: The schema.
        root: The schema that references start from.
        steps: One step for each schema that is looked at; None is returned behind the last.
    """
    node = _flat(schema, root, steps)
    if node is None:
        return None
    unions = [keyword for keyword in ("anyOf", "oneOf") if keyword in node]
    if not unions:
        return _typed(node)
    variants = node[unions[0]]
    if len(unions) > 1 or not isinstance(variants, list) or not variants:
        return None
    rest = {keyword: value for keyword, value in node.items() if keyword != unions[0]}
    found: list[Node] = []
    for variant in variants:
        merged = _merged(rest, variant) if isinstance(variant, dict) else None
        inner = None if merged is None else _alternatives(merged, root, steps)
        if inner is None:
            return None
        found += inner
    return found if unions[0] == "anyOf" or _are_disjoint(found) else None


def _flat(schema: Node, root: Node, steps: Iterator[int]) -> Node | None:
    """Return the schema with its reference and its `allOf` merged into it; None if they cannot be."""
    if next(steps, None) is None or not isinstance(schema.get("enum", []), list):
        return None
    node: Node | None = {keyword: value for keyword, value in schema.items() if keyword not in ("$ref", "allOf")}
    parts = list(schema["allOf"]) if isinstance(schema.get("allOf"), list) else []
    if isinstance(schema.get("$ref"), str):
        parts.append(referred_value(root, schema["$ref"]))
    for part in parts:
        inner = _flat(part, root, steps) if node is not None and isinstance(part, dict) else None
        node = None if node is None or inner is None else _merged(node, inner)
    return node


def _merged(node: Node, other: Node) -> Node | None:
    """Return a schema that binds as both do; None if they state the same keyword differently."""
    merged = {**node, **other}
    if "type" in node and "type" in other:
        merged["type"] = sorted(common_types(types_of({"type": node["type"]}), types_of({"type": other["type"]})))
    shared = node.keys() & other.keys() & (_CONSTRAINTS | {"enum", "const"})
    return merged if all(_plain(node[keyword]) == _plain(other[keyword]) for keyword in shared) else None


def _typed(node: Node) -> list[Node]:
    """Return the schema once for each of its types; listed values stay together."""
    if "enum" in node or "const" in node:
        return [node]
    types = types_of(node)
    return [{**node, "type": kind} for kind in sorted(types) if kind != "integer" or "number" not in types]


def _are_disjoint(nodes: list[Node]) -> bool:
    """Return whether no value follows two of these schemas, as far as types and listed values tell."""
    if all("enum" in node or "const" in node for node in nodes):
        marks = [_plain(value) for node in nodes for value in _listed(node)]
    else:
        marks = [kind.replace("integer", "number") for node in nodes for kind in types_of(node)]
    return len(marks) == len(set(marks))


def _listed(node: Node) -> list[Any]:
    """Return the values that a schema lists and that its type and lengths allow."""
    values = node["enum"] if isinstance(node.get("enum"), list) else [node["const"]]
    types, (least, most) = types_of({"type": node.get("type")}), _lengths(node)
    return [
        value
        for value in values
        if ("const" not in node or _plain(value) == _plain(node["const"]))
        and common_types(types_of({"const": value}), types)
        and (not isinstance(value, str) or least <= len(value) <= (len(value) if most is None else most))
    ]


def _lengths(node: Node) -> tuple[int, int | None]:
    """Return the bounds of a text's length in characters; one that cannot matter is left out."""
    least, most = (node.get(keyword) for keyword in ("minLength", "maxLength"))
    return (
        math.ceil(least) if isinstance(least, int | float) else 0,
        int(most) if isinstance(most, int | float) and most <= MAX_MOST_COUNT else None,
    )


def _joined(ranges: list[tuple[int, int | None]]) -> tuple[tuple[int, int | None], bool]:
    """Return the bounds of texts within any of the ranges, and whether every length between them is within one."""
    (least, most), *others = sorted(ranges, key=lambda bounds: bounds[0])
    is_exact = True
    for low, high in others:
        if most is not None:
            is_exact = is_exact and low <= most + 1
            most = None if high is None else max(most, high)
    return (least, most), is_exact


def _plain(value: Any) -> str:
    """Return a text that is equal for equal JSON values of the same types."""
    return json.dumps(value, sort_keys=True)
