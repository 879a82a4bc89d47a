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
_OTHER_SPELLINGS = (b"\\u0022", b"\\u003a", b"\\u003A")
_SPACED_COLONS = (b" :", b"\t:", b"\n:", b"\r:")
_SPACED_KEY = re.compile(rb'"[ \t\n\r]+:')
_FLOATS_BYTES = 1024
"""Size beyond which Python parses the floats; msgspec takes 7 µs for one near the ends of their range."""


def is_long(body: bytes) -> bool:
    """Return whether reading the body would hold the event loop too long, by its size or its number of values."""
    size = len(body)
    if size <= _SHORT_BYTES:
        return False
    return size > LONG_BYTES or sum(map(body.count, _MARKS)) > _MANY_MARKS


class JsonGuard:
    """Decoder for request bodies."""

    def __init__(self, names: Iterable[str], limits: Mapping[str, int] | None = None) -> None:
        """Create a decoder; see `LongObject` for `names` and `limits`, which say what is read of a long body."""
        self._names = frozenset(names)
        self._limits = limits or {}
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
        if _may_repeat_a_key(body, document):
            refuse_repeated_keys(body)
        return document, None


def _may_repeat_a_key(body: bytes, document: dict[str, Any]) -> bool:
    """Return False only where no object has a key twice.

    A key ends in `":`, of which text may hold more. Decoding drops repeated keys and nothing else, so that the encoded
    document has fewer of them than the body. Other spellings of the two characters would make the counts differ too.
    """
    if any(spelling in body for spelling in _OTHER_SPELLINGS):
        return True
    if any(colon in body for colon in _SPACED_COLONS) and _SPACED_KEY.search(body):
        return True
    try:
        return body.count(b'":') != msgspec.json.encode(document).count(b'":')
    except OverflowError:  # an integer beyond 64 bits
        return True


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
