"""Removal of null and empty members from a chat request, at every depth; they carry no request and no fault.

Only fields of the field table are cleaned. Unknown fields, schemas and the values of lists stay verbatim.
"""

from __future__ import annotations

import operator
from collections.abc import Container
from typing import Any, Final

from gateway.chat.fields.table import FIELD_RULES

_REQUIRED: Final = frozenset({"messages", "model"})
_NAMING: Final = frozenset({"arguments", "id", "name", "url"})
"""Members that objects below a message must keep wherever they have them."""
_OPEN: Final = frozenset(path.removesuffix("{}") for path in FIELD_RULES if path.endswith("{}")) | {
    path for path, rule in FIELD_RULES.items() if rule.is_closed
}
"""Objects of which every member counts, also one that the table does not name."""


def without_absent(document: dict[str, Any], names: Container[str]) -> dict[str, Any]:
    """Return the document without the null and empty members of the top-level fields in `names`.

    A value in which nothing is absent is the same object as before.
    """
    cleaned: dict[str, Any] = {}
    for name, value in document.items():
        clean = _cleaned(value, name) if name in names else value
        if name not in names or name in _REQUIRED or not _is_absent(clean):
            cleaned[name] = clean
    return cleaned


def _cleaned(value: Any, path: str) -> Any:
    if isinstance(value, list):
        items = [_cleaned(item, path + "[]") for item in value]
        return value if all(map(operator.is_, items, value)) else items
    if not isinstance(value, dict):
        return value
    cleaned: dict[str, Any] = {}
    is_changed = False
    for name, child in value.items():
        below = f"{path}.{name}"
        if below not in FIELD_RULES and path not in _OPEN:
            cleaned[name] = child
            continue
        clean = _cleaned(child, below) if isinstance(child, dict | list) else child
        if name == "arguments" and child is None:
            clean = ""  # a call without arguments carries an empty string
        if not _is_absent(clean) or _is_subject(name, value):
            cleaned[name] = clean
            is_changed = is_changed or clean is not child
        else:
            is_changed = True
    return cleaned if is_changed else value


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _is_subject(name: str, parent: dict[str, Any]) -> bool:
    """Return whether the member is the parent's payload, such as a message's content or the text of `type: text`."""
    if "role" in parent:
        return name == "content" and (parent["role"] != "assistant" or isinstance(parent[name], str | None))
    return name == parent.get("type") or name in _NAMING
