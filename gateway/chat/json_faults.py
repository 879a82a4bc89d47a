"""Faults of JSON bodies: what is refused besides malformed JSON, and how the errors name it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import isinf
from typing import Any, Final

import msgspec

from gateway.errors import InvalidRequest

MAX_DEPTH: Final = 64
MAX_VALUES: Final = 200_000
_OFFSET: Final = re.compile(r"\(byte (\d+)\)")
_TRUNCATED: Final = "Input data was truncated"
_UNEXPECTED_END: Final = "JSON is malformed: unexpected end of escaped utf-16 surrogate pair"
HIGH_AT_END: Final = re.compile(rb'(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})"')
"""First half of a surrogate pair at the end of a string."""
_END_BYTES: Final = 64


def invalid(message: str) -> InvalidRequest:
    """Return the error for a body that is no acceptable JSON."""
    return InvalidRequest(message, code="invalid_json")


def finite(text: str) -> float:
    """Return the number; raises ValueError for one beyond the range of floats."""
    value = float(text)
    if isinf(value):
        raise ValueError("Number out of range")
    return value


def refuse_repeated_keys(text: bytes) -> None:
    """Read JSON once more, with an eye on the keys; numbers are not converted. Raises InvalidRequest."""
    json.loads(text, object_pairs_hook=_unique, parse_int=len, parse_float=len)


def decoded(text: bytes, decode: Callable[[bytes], Any], offset: int = 0) -> Any:
    """Return the value; `offset` is the place of the text in the body.

    Raises:
        InvalidRequest: It is no acceptable JSON; code `invalid_json`, with the fault and its place.
    """
    try:
        return decode(text)
    except msgspec.ValidationError as error:
        reason = str(error).split(" - at ")[0]
        raise invalid(f"The body holds a number that cannot be represented: {reason}.") from None
    except msgspec.DecodeError as error:
        reason = _OFFSET.sub(lambda found: f"(byte {int(found[1]) + offset})", _reason(text, error))
        raise invalid(f"The body is not valid JSON: {reason}.") from None
    except UnicodeDecodeError:
        raise invalid("The body is not valid UTF-8.") from None
    except RecursionError:
        raise too_deep() from None


def _reason(text: bytes, error: msgspec.DecodeError) -> str:
    """Return the decoder's words; half of a surrogate pair near the end is none of missing bytes, which it states."""
    reason = str(error)
    if reason == _TRUNCATED and (half := HIGH_AT_END.search(text, max(len(text) - _END_BYTES, 0))) is not None:
        return f"{_UNEXPECTED_END} (byte {half.end(1)})"
    return reason


def too_deep() -> InvalidRequest:
    """Return the error for a body that is nested too deep."""
    return invalid(f"The body is nested deeper than {MAX_DEPTH} levels.")


def _unique(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise repeated(key)
        seen.add(key)


def repeated(key: str) -> InvalidRequest:
    """Return the error for a key that stands twice in one object."""
    return InvalidRequest(
        f"The key {key[:64]!r} stands more than once in one object. Send each key once.",
        param=key[:64],
        code="invalid_json",
    )
