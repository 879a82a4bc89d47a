"""Schemas in the form that the grammar compiler enforces exactly, one node at a time."""

from __future__ import annotations

from typing import Any, Final

from engine.frontend.schemas.patterns import UnreadablePatternError, compiler_pattern
from engine.frontend.schemas.references import encoded_reference

Node = dict[str, Any]

_DAY: Final = (
    r"[0-9]{4}-(?:(?:0[13-9]|1[0-2])-[0-9]{2}|02-(?:[01][0-9]|2[0-8]))"
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29"
)
_SECOND: Final = r"[0-9]{2}:[0-9]{2}:[0-5]"
_FORMATS: Final = {"date": f"^(?:{_DAY})", "time": f"^{_SECOND}", "date-time": f"^(?:{_DAY})[tT]{_SECOND}"}
"""Patterns of formats of which the compiler allows more: February 29 in every year, and a second 60 in every minute."""


def compiler_form(node: Node, *, is_strict: bool) -> tuple[Node, dict[str, str]]:
    """Return a schema's node as the compiler needs it, and the keywords that it then does not enforce, with reasons.

    Patterns that the compiler cannot read are left out, and what depends on them. So are counts of members that the
    compiler would misapply, in a schema that is not strict.
    """
    changed, unenforced = dict(node), dict[str, str]()
    if isinstance(node.get("$ref"), str):
        changed["$ref"] = encoded_reference(node["$ref"])
    if isinstance(node.get("pattern"), str):
        try:
            changed["pattern"] = compiler_pattern(node["pattern"])
        except UnreadablePatternError as error:
            unenforced["pattern"] = str(error)
            del changed["pattern"]
    if isinstance(node.get("format"), str) and node["format"] in _FORMATS:
        bound = {"pattern": _FORMATS[node["format"]]}
        parts = node.get("allOf")
        changed |= {"allOf": [*(parts if isinstance(parts, list) else []), bound]} if "pattern" in changed else bound
    if isinstance(node.get("patternProperties"), dict):
        _translate_names(changed, unenforced)
    if "minProperties" in node or "maxProperties" in node:
        _count(changed, unenforced, is_strict=is_strict)
    if "additionalItems" in node and not isinstance(node.get("items"), list):
        del changed["additionalItems"]  # it has no meaning, and the compiler would drop `prefixItems`
    for keyword, subject in (("additionalItems", "items"), ("additionalProperties", "patternProperties")):
        if keyword in changed and subject in changed:
            changed = _behind(changed, keyword, subject)
    return changed, unenforced


def may_repeat_names(node: Node) -> bool:
    """Return whether an object may have other names than those that the node treats apart.

    The compiler lets such a name be spelled with escapes, so that it may decode to one of the others.
    """
    if "patternProperties" in node:
        return True
    return bool(node.get("properties") or node.get("required")) and node.get("additionalProperties") is not False


def _translate_names(changed: Node, unenforced: dict[str, str]) -> None:
    """Bring the names of `patternProperties` into the compiler's form, and leave out those that it cannot read.

    `additionalProperties` would then constrain names that match a missing pattern, and is left out too.
    """
    found: Node = {}
    for pattern, schema in changed["patternProperties"].items():
        try:
            name = compiler_pattern(pattern)
        except UnreadablePatternError as error:
            unenforced["patternProperties"] = str(error)
            continue
        found[name] = {"allOf": [found[name], schema]} if name in found else schema
    changed["patternProperties"] = found
    if "patternProperties" in unenforced and changed.pop("additionalProperties", None) is not None:
        unenforced["additionalProperties"] = "it depends on patternProperties"


def _count(changed: Node, unenforced: dict[str, str], *, is_strict: bool) -> None:
    """Note counts of members that the compiler does not enforce, and leave out those that it would misapply."""
    listed, declared = changed.get("required"), changed.get("properties")
    required = set(listed) if isinstance(listed, list) and all(isinstance(name, str) for name in listed) else set()
    has_optional = isinstance(declared, dict) and not declared.keys() <= required
    counts = {
        keyword: changed[keyword] - len(required)
        for keyword in ("minProperties", "maxProperties")
        if isinstance(changed.get(keyword), int)
    }
    least, most = counts.get("minProperties", 0), counts.get("maxProperties")
    if least > 1:
        unenforced["minProperties"] = "more than one name beside those of `required` may be one name, repeated"
    is_closed = changed.get("additionalProperties") is False and "patternProperties" not in changed
    if is_strict or not has_optional or (is_closed and least <= 1 and most in (None, 1)):
        return  # the compiler enforces the counts, or refuses them
    for keyword in ("minProperties", "maxProperties"):
        if least > 0 if keyword == "minProperties" else most is not None:
            unenforced[keyword] = "names beside those of `required` are not counted"
            del changed[keyword]


def _behind(node: Node, keyword: str, subject: str) -> Node:
    """Return the node with a keyword directly behind another.

    The compiler reads the two as one only where no keyword such as `anyOf` stands between them.
    """
    moved: Node = {}
    for name, value in node.items():
        if name != keyword:
            moved[name] = value
        if name == subject:
            moved[keyword] = node[keyword]
    return moved
