"""References inside a JSON schema: `#/$defs/name`, with the escapes of JSON pointers and of URIs."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote, unquote

_STRAY_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN: Final = "/%~!$&'()*+,;=:@?"
"""Characters of a fragment, beside letters, digits and `-._~`, that need no escape."""


def encoded_reference(reference: str) -> str:
    """Return a reference with escapes in place of the characters that no URI may have."""
    if not reference.startswith("#"):
        return reference
    return "#" + quote(_STRAY_PERCENT.sub("%25", reference[1:]), safe=_PLAIN, errors="replace")


def reference_names(reference: str) -> list[str]:
    """Return the names that a reference `#/…` goes through, without escapes."""
    return [unquote(part).replace("~1", "/").replace("~0", "~") for part in reference.split("/")[1:]]


def referred_value(schema: Any, reference: str) -> Any:
    """Return the value that a reference `#/…` names in the schema; None if there is none."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    target: Any = schema
    for name in reference_names(reference):
        if isinstance(target, dict):
            target = target.get(name)
        elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        else:
            return None
    return target
