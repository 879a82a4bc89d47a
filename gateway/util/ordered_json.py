"""Ordered JSON: equal values have equal bytes, in whatever order their members came.

The encoder's own sorting takes time with the square of an object's members where they come in an unlucky order. From
some tens of thousands on it ends the process: its recursion is as deep as the object is wide. Wide objects are sorted
here.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

WIDE: Final = 256
"""Members of one object that the encoder may sort: at worst 70 microseconds."""

encode_narrow: Final = msgspec.json.Encoder(order="deterministic").encode
"""Ordered JSON of a value whose objects all have at most `WIDE` members."""
_encode: Final = msgspec.json.Encoder().encode


def encode_ordered(value: Any) -> bytes:
    """Ordered JSON of any value."""
    return _encode(_sorted(value)) if _is_wide(value) else encode_narrow(value)


def _is_wide(value: Any) -> bool:
    """Whether any object inside has more than `WIDE` members."""
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
    """The value with the members of all objects in order; as deep as a request may be nested."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) if isinstance(item, dict | list) else item for item in value]
    return value
