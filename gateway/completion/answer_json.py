"""JSON of upstream answers: numbers stay as they were written, so they cost nothing to read and survive byte for byte.

Converting a number near the ends of the range of floats takes microseconds: megabytes of them would stop the gateway
for seconds. Nobody computes with the numbers of an answer, apart from a few counts.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

_MAX_NUMBER_BYTES: Final = 64


def as_written(text: str) -> msgspec.Raw | float:
    """Return a number with a fraction or an exponent in a form that encoders copy; zero stays a false value."""
    return 0.0 if text == "0.0" else msgspec.Raw(text)


decode_answer: Final = msgspec.json.Decoder(float_hook=as_written).decode
"""Decoder of a whole answer or event."""


def document_of(data: bytes) -> Any:
    """Return the JSON document in `data`, also with the NaN that some servers write; None for other input."""
    try:
        return decode_answer(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # most often for an infinite log-probability
    try:
        return json.loads(data.decode("utf-8-sig"), parse_float=as_written)
    except (ValueError, RecursionError):
        return None


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
