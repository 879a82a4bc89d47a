"""Strict JSON: one object, unique keys, bounded depth and size, no lone surrogates, no infinite numbers.

msgspec rejects most bad JSON: invalid UTF-8, byte-order marks, trailing bytes, NaN, lone surrogates. A few scans in C
find the rest. An ordinary request pays about two microseconds for them. Only a suspicious one is read a second time,
more slowly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from math import isinf
from typing import Any

import msgspec

from gateway.errors import InvalidRequest

MAX_DEPTH = 64
MAX_VALUES = 200_000
_MANY_BYTES = 256 * 1024
LONG_BYTES = 64 * 1024
"""Size beyond which a body of text takes about a millisecond to read."""
_SHORT_BYTES = 8 * 1024
_MARKS = (b'"', b"{", b"[", b",")
_MANY_MARKS = 2500
_MAX_COUNTED_NAMES = 4
"""Number of unknown names counted one by one; beyond it, one exact reading is cheaper than as many searches."""
_ESCAPED_NAME = re.compile(rb"\\u00(?:5[fF]|[67])")
_ESCAPED_ASCII = re.compile(rb"\\u00[2-7]")
_SPACED_COLON = re.compile(rb'(?<!\\)"[ \t\n\r]+:')
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SOME_STRINGS = re.compile(rb'(?:[^"]*+"[^"\\]*+(?:\\.[^"\\]*+)*+"){1,1000}+', re.DOTALL)
_FLOATS_BYTES = 1024
"""Size beyond which Python parses the floats; msgspec takes 7 µs for one near the ends of their range."""


def is_long(body: bytes) -> bool:
    """Return whether reading the body would hold the event loop too long, by its size or its number of values."""
    size = len(body)
    if size <= _SHORT_BYTES:
        return False
    return size > LONG_BYTES or sum(map(body.count, _MARKS)) > _MANY_MARKS


class JsonGuard:
    """Decoder for request bodies; the fast path looks for repetitions of the top-level keys in `names`."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        known = "|".join(sorted((re.escape(name) for name in self._names | {"role", "content"}), key=len, reverse=True))
        self._find_names = re.compile(f'"({known})"\\s*:'.encode()).findall
        self._decode = msgspec.json.Decoder().decode
        self._decode_longer = msgspec.json.Decoder(float_hook=_float).decode

    def decode(self, body: bytes) -> dict[str, Any]:
        """Return the top-level object.

        Raises:
            InvalidRequest: The body is no acceptable JSON; code `invalid_json`, with the fault and its place.
        """
        if len(body) > _MANY_BYTES and _num_keys(body) > MAX_VALUES:
            raise _invalid(f"The body has more than {MAX_VALUES} keys.")
        if len(body) > _MANY_BYTES and _has_many_containers(body):
            raise _invalid(f"The body has more than {MAX_VALUES} values.")
        document = self._parse(body)
        if not isinstance(document, dict):
            raise _invalid("The body must be a JSON object.")
        if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
            _check_shape(document)
        if self._may_repeat_a_key(body, document):
            _reject_repeated_keys(body)
        return document

    def _parse(self, body: bytes) -> object:
        try:
            return self._decode(body) if len(body) <= _FLOATS_BYTES else self._decode_longer(body)
        except msgspec.ValidationError as error:
            reason = str(error).split(" - at ")[0]
            raise _invalid(f"The body holds a number that cannot be represented: {reason}.") from None
        except msgspec.DecodeError as error:
            raise _invalid(f"The body is not valid JSON: {error}.") from None
        except UnicodeDecodeError:
            raise _invalid("The body is not valid UTF-8.") from None
        except RecursionError:
            raise _too_deep() from None

    def _may_repeat_a_key(self, body: bytes, document: dict[str, Any]) -> bool:
        """Return False only when counting `"name":` in the raw bytes excludes a repeated key."""
        if _is_plain(body, document):
            return False
        if b"\\u00" in body and _ESCAPED_NAME.search(body):
            return True
        found = self._find_names(body)
        roles, contents = found.count(b"role"), found.count(b"content")
        messages = document.get("messages")
        if isinstance(messages, list) and (roles > len(messages) or contents > len(messages)):
            return True
        if len(found) - roles - contents > len(set(found)) - (roles > 0) - (contents > 0):
            return True
        unknown = document.keys() - self._names
        if len(unknown) > _MAX_COUNTED_NAMES:
            return True
        return any(_may_stand_twice(name, body) for name in unknown)


def _may_stand_twice(name: str, body: bytes) -> bool:
    """Return False only when the name occurs once in the raw bytes and has no other spelling there."""
    if not name.isascii() or not name.isprintable() or not {'"', "\\", "/"}.isdisjoint(name):
        return True
    return body.count(msgspec.json.encode(name)) > 1 or (b"\\u00" in body and bool(_ESCAPED_ASCII.search(body)))


def _num_keys(body: bytes) -> int:
    """Return an upper bound on the keys of all objects together; text that looks like a key counts too."""
    num_keys = body.count(b'":') - body.count(b'\\":')
    if num_keys <= MAX_VALUES and (b" :" in body or b"\t:" in body or b"\n:" in body or b"\r:" in body):
        num_keys += sum(1 for _ in _SPACED_COLON.finditer(body))
    return num_keys


def _has_many_containers(body: bytes) -> bool:
    """Return whether lists and objects exceed MAX_VALUES.

    Strings are skipped a thousand at a time, so other threads can take the interpreter's lock in between.
    """
    if body.count(b"[") + body.count(b"{") <= MAX_VALUES:
        return False
    num, at = 0, 0
    while num <= MAX_VALUES and (run := _SOME_STRINGS.match(body, at)) is not None:
        bare, at = _STRING.sub(b"", run.group()), run.end()
        num += bare.count(b"[") + bare.count(b"{")
    return num + body.count(b"[", at) + body.count(b"{", at) > MAX_VALUES


def _float(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError("Number out of range")
    return value


def _is_plain(body: bytes, document: dict[str, Any]) -> bool:
    """Return whether the document has no keys but its own and those of its messages.

    Each key ends in `":` in the raw bytes. Text can only add to that count, and a repeated key makes it exceed the
    number of keys.
    """
    messages = document.get("messages")
    if b" :" in body or b"\t:" in body or b"\n:" in body or b"\r:" in body or not isinstance(messages, list):
        return False
    num_keys = len(document)
    for message in messages:
        if not isinstance(message, dict):
            return False
        num_keys += len(message)
    return body.count(b'":') == num_keys


def _check_shape(document: dict[str, Any]) -> None:
    """Check depth and number of values, level by level over containers only; stop at the first excess.

    Raises:
        InvalidRequest: The document exceeds MAX_DEPTH or MAX_VALUES.
    """
    level: list[Any] = [document]
    values = 0
    for _ in range(MAX_DEPTH):
        values += sum(map(len, level))
        if values > MAX_VALUES:
            raise _invalid(f"The body has more than {MAX_VALUES} values.")
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise _too_deep()


def _reject_repeated_keys(body: bytes) -> None:
    def unique(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidRequest(
                    f"The key {key[:64]!r} stands more than once in one object. Send each key once.",
                    param=key[:64],
                    code="invalid_json",
                )
            seen.add(key)

    json.loads(body, object_pairs_hook=unique)


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_json")


def _too_deep() -> InvalidRequest:
    return _invalid(f"The body is nested deeper than {MAX_DEPTH} levels.")
