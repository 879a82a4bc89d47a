"""Strict JSON: one object, unique keys, bounded depth and size, no lone surrogates, no infinite numbers.

msgspec rejects most bad JSON: invalid UTF-8, byte-order marks, trailing bytes, NaN, lone surrogates. A few scans in C
find the rest. An ordinary request pays about two microseconds for them. Only a suspicious one is read a second time,
more slowly. A long body is decoded in slices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gateway.chat.json_faults import (
    MAX_DEPTH,
    decoded,
    finite,
    invalid,
    refuse_repeated_keys,
    too_deep,
)
from gateway.chat.member_spans import MemberSpans
from gateway.chat.sliced_json import LongObject

LONG_BYTES = 64 * 1024
"""Size beyond which a body of text takes about a millisecond to read."""
_SHORT_BYTES = 8 * 1024
_MARKS = (b'"', b"{", b"[", b",")
_MANY_MARKS = 2500
_MAX_COUNTED_NAMES = 4
"""Number of unknown names counted one by one; beyond it, one exact reading is cheaper than as many searches."""
_ESCAPED_NAME = re.compile(rb"\\u00(?:5[fF]|[67])")
_ESCAPED_ASCII = re.compile(rb"\\u00[2-7]")
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

    def __init__(self, names: Iterable[str], limits: Mapping[str, int] | None = None) -> None:
        """Create a decoder; see `LongObject` for `limits`, the sizes of what is read of a long body."""
        self._names = frozenset(names)
        self._limits = limits or {}
        known = "|".join(sorted((re.escape(name) for name in self._names | {"role", "content"}), key=len, reverse=True))
        self._find_names = re.compile(f'"({known})"\\s*:'.encode()).findall
        self._decode = msgspec.json.Decoder().decode
        self._decode_longer = msgspec.json.Decoder(float_hook=finite).decode

    def decode(self, body: bytes) -> dict[str, Any]:
        """Return the top-level object.

        Raises:
            InvalidRequest: The body is no acceptable JSON; code `invalid_json`, with the fault and its place.
        """
        return self.read(body)[0]

    def read(self, body: bytes) -> tuple[dict[str, Any], MemberSpans | None]:
        """Return the top-level object, and of a long body the positions of its known members; see `decode`."""
        if is_long(body):
            long = LongObject(body, names=self._names, limits=self._limits)
            return long.document, long.spans
        decode = self._decode if len(body) <= _FLOATS_BYTES else self._decode_longer
        try:
            document = decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            document = decoded(body, decode)  # once more, for the fault in words
        if not isinstance(document, dict):
            raise invalid("The body must be a JSON object.")
        if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
            _check_depth(document)
        if self._may_repeat_a_key(body, document):
            refuse_repeated_keys(body)
        return document, None

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


def _check_depth(document: dict[str, Any]) -> None:
    """Raise InvalidRequest for a document nested deeper than MAX_DEPTH; only containers are looked at."""
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise too_deep()
