"""Ordered JSON: equal values have equal bytes, whatever the order of their members.

msgspec's sorting is quadratic in an object's members for unfavourable orders. With tens of thousands of members its
recursion ends the process. Wide objects are therefore sorted here.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

WIDE: Final = 256
"""Number of members in one object that msgspec may sort; at worst that takes 70 µs."""

encode_narrow: Final = msgspec.json.Encoder(order="deterministic").encode
"""Encoder of ordered JSON for values whose objects all have at most `WIDE` members."""
_encode: Final = msgspec.json.Encoder().encode


def encode_ordered(value: Any) -> bytes:
    """Return any value as ordered JSON."""
    return _encode(_sorted(value)) if _is_wide(value) else encode_narrow(value)


def _is_wide(value: Any) -> bool:
    """Return whether any object inside has more than `WIDE` members."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            if len(found) > WIDE:
                return True
            found = found.values()
        elif not isinstance(found, list):
            continue
        waiting.extend([child for child in found if isinstance(child, dict | list)])
    return False


def _sorted(value: Any) -> Any:
    """Return the value with sorted objects; recursion is bounded by the depth of a request."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) if isinstance(item, dict | list) else item for item in value]
    return value
