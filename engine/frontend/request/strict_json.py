"""Strict reader of JSON bodies: it refuses what other parsers would read differently."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from engine.frontend.request.errors import ApiError, invalid_json

MAX_DEPTH = 64
MAX_MEMBERS = 100_000
MAX_ELEMENTS = 400_000
"""Maximum number of elements of all lists together; a prompt may be a list of token ids."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_SQUARE = bytes.maketrans(b"{}", b"[]")


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the body as a JSON object.

    Raises:
        ApiError: `invalid_json` (400) for bad syntax or UTF-8, a byte order mark, lone surrogates, NaN and infinities,
            numbers out of range, duplicate keys, or nesting deeper than 64.
    """
    # Cheap bound before the exact count: in valid JSON a quote and a colon end a key unless the quote is escaped.
    if body.count(b'":') - body.count(b'\\":') > MAX_MEMBERS:
        raise _too_many()
    # Every string has two unescaped quotes, and a member has at most two strings.
    if body.count(b'"') - body.count(b'\\"') > 4 * MAX_ELEMENTS:
        raise _too_many()
    try:
        value = msgspec.json.decode(body)
    except UnicodeDecodeError as error:
        raise invalid_json(f"The body is not valid UTF-8 (byte {error.start} of a string).") from error
    except RecursionError as error:
        raise _too_deep() from error
    except msgspec.MsgspecError as error:
        raise invalid_json(f"The body is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise invalid_json("The body must be a JSON object.")
    _check_shape(body, value)
    return value


def _check_shape(body: bytes, value: dict[str, Any]) -> None:
    """Check depth, size and duplicate keys. `body` is valid JSON, so each colon outside strings is a member."""
    skeleton = _STRING.sub(b"", body)
    num_members = skeleton.count(b":")
    brackets = skeleton.translate(None, _NOT_BRACKETS)
    if num_members > MAX_MEMBERS or max(len(brackets), skeleton.count(b",")) > MAX_ELEMENTS:
        raise _too_many()
    brackets = brackets.translate(_SQUARE)
    for _ in range(MAX_DEPTH):  # each pass removes the innermost level
        if not brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise _too_deep()
    if _count_members(value) != num_members:
        raise invalid_json("The body has an object with duplicate keys.")


def _count_members(root: dict[str, Any]) -> int:
    total = 0
    pending: list[Any] = [root]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            total += len(value)
            pending.extend(child for child in value.values() if isinstance(child, dict | list))
        else:
            pending.extend(child for child in value if isinstance(child, dict | list))
    return total


def _too_deep() -> ApiError:
    return invalid_json(f"The body is nested too deeply; the limit is {MAX_DEPTH} levels.")


def _too_many() -> ApiError:
    limits = f"{MAX_MEMBERS} object members and {MAX_ELEMENTS} list elements"
    return invalid_json(f"The body has too many values; the limits are {limits}.")
