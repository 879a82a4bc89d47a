"""JSON of upstream answers: numbers stay as they were written, so they cost nothing to read and survive byte for byte.

Converting a number near the ends of the range of floats takes microseconds: megabytes of them would stop the gateway
for seconds. Nobody computes with the numbers of an answer, apart from a few counts.

A string of JSON may hold half of a surrogate pair, which no UTF-8 can carry. U+FFFD stands in its place.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

_MAX_NUMBER_BYTES: Final = 64
_DIGITS: Final = rb"[0-9a-fA-F]{2}"
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB]%b\\u[dD][c-fC-F]%b|(u[dD][89a-fA-F]%b)|.)" % (_DIGITS, _DIGITS, _DIGITS), re.DOTALL
)
"""Escape in a string: a surrogate pair, half of one as the group, or any other."""
_REPLACEMENT: Final = rb"\ufffd"


def as_written(text: str) -> msgspec.Raw | float:
    """Return a number with a fraction or an exponent in a form that encoders copy; zero stays a false value."""
    return 0.0 if text == "0.0" else msgspec.Raw(text)


decode_answer: Final = msgspec.json.Decoder(float_hook=as_written).decode
"""Decoder of a whole answer or event."""


def document_of(data: bytes) -> Any:
    """Return the JSON document in `data`; None for other input.

    NaN, which some servers write, is accepted. Half of a surrogate pair becomes U+FFFD.
    """
    try:
        return decode_answer(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # most often for an infinite log-probability
    if b"\\ud" in data or b"\\uD" in data:
        data = _ESCAPE.sub(_mended, data)
    try:
        return json.loads(data.decode("utf-8-sig"), parse_float=as_written)
    except (ValueError, RecursionError):
        return None


def _mended(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape[1] is None else _REPLACEMENT


def is_utf8(data: bytes) -> bool:
    """Return whether the bytes are UTF-8; a decoder does not look into the strings that it skips."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def written_number(value: object) -> int | float | None:
    """Return the number that a decoded value is, or None."""
    if isinstance(value, msgspec.Raw):
        text = bytes(value)
        return float(text) if len(text) <= _MAX_NUMBER_BYTES else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
