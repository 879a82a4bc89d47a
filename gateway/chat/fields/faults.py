"""Faults of fields in the client's words, such as "`temperature` must be between 0 and 2; got 7.".

The decoder reports the path of a wrong value and its own description. The path is kept; the words come from the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gateway.chat.fields.table import FIELD_RULES, FieldRule

_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_INDEX: Final = re.compile(r"\[\d+\]")
_NAMED: Final = re.compile(r"(missing required|unknown) field `([^`]+)`")
_MAX_SHOWN_CHARS: Final = 40
_MAX_SHOWN_NUMBER: Final = 10**39
_ABSENT: Final = object()


class FieldFault(NamedTuple):
    """A fault of one field, as clients see it."""

    param: str | None
    message: str


def fault_of(report: str, document: object, rules: Mapping[str, FieldRule] = FIELD_RULES) -> FieldFault:
    """Translate msgspec's report of a wrong value.

    Args:
        report: Text such as "Expected `int`, got `str` - at `$.messages[0].role`".
        document: The value that was converted.
        rules: Rules of its fields, by path.
    """
    reason, _, where = report.rpartition(" - at `")
    if not reason:
        reason, where = report, ""
    path = where.removeprefix("key` in `").rstrip("`").removeprefix("$").lstrip(".")
    path, value = path.removesuffix("[...]"), _ABSENT
    named = _NAMED.search(reason)
    if named is not None:
        path = f"{path}.{named[2]}" if path else named[2]
        return missing_fault(path) if named[1] == "missing required" else unknown_fault(path)
    if "[...]" not in path:
        value = _value_at(document, path)
    if value is None and not path.endswith("]"):
        return missing_fault(path)
    return wrong_value(path, value, rules)


def wrong_value(path: str, value: object = _ABSENT, rules: Mapping[str, FieldRule] = FIELD_RULES) -> FieldFault:
    """Return the fault of a value that breaks its field's rule."""
    pattern = _INDEX.sub("[]", path)
    rule, entries = rules.get(pattern), rules.get(pattern + "{}")
    if rule is None:
        return FieldFault(path or None, f"`{path}` must be of another type{_got(value)}." if path else _NO_OBJECT)
    if entries is not None and isinstance(value, dict) and (rule.most is None or len(value) <= rule.most):
        rule, value = entries, _wrong_entry(entries, value)
    is_of_type = type(value) in (int, float) if rule.type == "number" else type(value) is int
    condition = rule.range_condition if is_of_type else rule.condition
    return FieldFault(path, f"`{path}` must {condition}{_got(value)}.")


def missing_fault(path: str) -> FieldFault:
    """Return the fault of a required field that is absent."""
    return FieldFault(path, f"`{path}` is required.")


def unknown_fault(path: str) -> FieldFault:
    """Return the fault of a field that may not be there."""
    return FieldFault(path, f"`{path}` is not a field of this API; remove it.")


def too_many(path: str) -> FieldFault:
    """Return the fault of a list or object with too many items."""
    rule = FIELD_RULES.get(_INDEX.sub("[]", path))
    condition = "have fewer items" if rule is None else rule.condition
    return FieldFault(path, f"`{path}` must {condition}; got more.")


def only_with(path: str, switch: str) -> FieldFault:
    """Return the fault of a field that has an effect beside another one only."""
    return FieldFault(path, f"`{path}` must not be sent unless `{switch}` is true.")


_NO_OBJECT: Final = "The body must be a JSON object."


def _value_at(document: object, path: str) -> object:
    """Return the value at a path, or a mark where there is none."""
    value: Any = document
    for name, index in _STEP.findall(path):
        try:
            value = value[int(index)] if index else value[name]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return value


def _wrong_entry(rule: FieldRule, entries: dict[str, Any]) -> object:
    """Return the first key that breaks the rule's pattern, or the first value out of its range."""
    for key, value in entries.items():
        if rule.pattern is not None and re.search(rule.pattern, key) is None:
            return key
        if type(value) not in (int, float) or not (rule.least or 0) <= value <= (rule.most or 0):
            return value
    return _ABSENT


def _got(value: object) -> str:
    """Return what was sent, short and in JSON's spelling."""
    if value is _ABSENT:
        return ""
    if isinstance(value, list):
        return f"; got a list of {len(value)} items"
    if isinstance(value, dict):
        return f"; got an object of {len(value)} members"
    if isinstance(value, int | float) and abs(value) > _MAX_SHOWN_NUMBER:
        return "; got a number of many digits"
    if isinstance(value, str) and len(value) > _MAX_SHOWN_CHARS:
        return f"; got {len(value)} characters"
    if isinstance(value, str | int | float | None):
        return f"; got {json.dumps(value, ensure_ascii=False)}"
    return ""
