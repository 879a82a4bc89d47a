"""Removal of null and empty members from a chat request, at every depth; they carry no request and no fault.

Only fields that the gateway interprets are cleaned. Unknown fields, schemas and the values of lists stay verbatim.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

_REQUIRED: Final = frozenset({"messages", "model"})
_NAMING: Final = frozenset({"arguments", "id", "name", "url"})
"""Members that objects below a message must keep wherever they have them."""
_VERBATIM: Final = frozenset({"parameters", "schema", "input_audio"})
"""Members whose content only the upstream interprets."""


def without_absent(document: dict[str, Any], names: Container[str]) -> dict[str, Any]:
    """Return the document without the null and empty members of the top-level fields in `names`."""
    cleaned: dict[str, Any] = {}
    for name, value in document.items():
        clean = _cleaned(value) if name in names else value
        if name not in names or name in _REQUIRED or not _is_absent(clean):
            cleaned[name] = clean
    return cleaned


def _cleaned(value: Any) -> Any:
    if isinstance(value, list):
        return [_cleaned(item) if isinstance(item, dict | list) else item for item in value]
    if not isinstance(value, dict):
        return value
    cleaned: dict[str, Any] = {}
    for name, child in value.items():
        clean = _cleaned(child) if isinstance(child, dict | list) and name not in _VERBATIM else child
        if name == "arguments" and child is None:
            clean = ""  # a call without arguments carries an empty string
        if not _is_absent(clean) or _is_subject(name, value):
            cleaned[name] = clean
    return cleaned


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _is_subject(name: str, parent: dict[str, Any]) -> bool:
    """Return whether the member is the parent's payload, such as a message's content or the text of `type: text`."""
    if "role" in parent:
        return name == "content" and (parent["role"] != "assistant" or isinstance(parent[name], str | None))
    return name == parent.get("type") or name in _NAMING
