"""Edits to the members of a JSON object in its bytes; unchanged members keep the client's spelling.

Keys are compared with escapes resolved, and only at the top level. Text inside strings is never taken for a member. The
object must be valid JSON with unique keys. The time is linear in its size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

_SIMPLE_RUN: Final = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]{0,256}+")*+')
"""Run of bytes without brackets: anything between strings, and short strings without escapes."""
_SPACE: Final = re.compile(rb"[ \t\n\r]*+")
_SCALAR: Final = re.compile(rb"[^,}\]\s]++")
_ESCAPED_NAME: Final = re.compile(rb"\\u00(?:5[fF]|[67])")
_COMMA: Final = ord(",")
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_OPENING: Final = frozenset(b"{[")
_CLOSING: Final = ord("}")
_LIST_END: Final = ord("]")


class JsonMember(NamedTuple):
    """Position of one member and of its value, as offsets into the body."""

    name: str
    start: int
    value_start: int
    end: int


def encoded(value: object) -> bytes:
    """Encode a value as JSON, integers beyond 64 bits included."""
    try:
        return msgspec.json.encode(value)
    except OverflowError:
        return json.dumps(value, ensure_ascii=False, default=_of_raw).encode()


def _of_raw(value: object) -> Any:
    """Decode JSON that was left as it was written, for an encoder that cannot copy it."""
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    raise TypeError(f"no JSON for {type(value).__name__}")


def with_cache_salt(body: bytes, own: object, tenant: bytes) -> bytes:
    """Return a request's object with `cache_salt`, in which a tenant's salt precedes the client's `own` one, if any."""
    salt = tenant.decode("ascii")
    return with_members(body, {"cache_salt": f"{salt}:{own}" if isinstance(own, str) else salt})


def with_members(body: bytes, changes: Mapping[str, Any]) -> bytes:
    """Return the object with these members set: in place where they exist, else at its end."""
    whole, begin, at = memoryview(body), 0, 0
    pieces: list[bytes | memoryview] = []
    left = dict(changes)
    for member in members_of(body):
        at = member.end
        if member.name in left:
            pieces += [whole[begin : member.value_start], encoded(left.pop(member.name))]
            begin = at
    if left:
        added = encoded(left)
        end = at or body.index(b"{") + 1
        pieces += [whole[begin:end], b"," if at else b"", added[1:-1]]
        begin = end
    return b"".join([*pieces, whole[begin:]])


def without_members(body: bytes, names: Container[str]) -> bytes:
    """Return the object without these members; the others keep their spelling, but not the space between them."""
    members = list(members_of(body))
    remaining = [member for member in members if member.name not in names]
    if len(remaining) == len(members):
        return body
    return b"{" + b",".join(body[member.start : member.end] for member in remaining) + b"}"


def mended_json(text: bytes, sent: Any, mended: Any) -> bytes:
    """Return the JSON text of a value of which parts were removed or replaced; equal parts keep their bytes.

    Args:
        text: JSON text of `sent`, without white space around it.
        sent: The decoded value.
        mended: The value wanted; a part that is the same object as in `sent` is unchanged.
    """
    if mended is sent:
        return text
    if isinstance(sent, dict) and isinstance(mended, dict):
        members = [
            text[found.start : found.value_start]
            + mended_json(text[found.value_start : found.end], sent[found.name], mended[found.name])
            for found in members_of(text)
            if found.name in mended
        ]
        return b"{" + b",".join(members) + b"}"
    if isinstance(sent, list) and isinstance(mended, list) and len(sent) == len(mended):
        values = zip(_items_of(text), sent, mended, strict=True)
        return b"[" + b",".join([mended_json(*each) for each in values]) + b"]"
    return encoded(mended)


def _items_of(text: bytes) -> Iterator[bytes]:
    """Iterate over the texts of a list's items."""
    at = _past_space(text, 1)
    while text[at] != _LIST_END:
        start, at = at, _past_value(text, at)
        yield text[start:at]
        at = _past_space(text, at)
        if text[at] == _COMMA:
            at = _past_space(text, at + 1)


def may_escape_a_name(body: bytes) -> bool:
    """Return whether a letter or underscore is escaped anywhere, so a search by bytes could miss a key."""
    return b"\\u00" in body and _ESCAPED_NAME.search(body) is not None


def members_of(body: bytes) -> Iterator[JsonMember]:
    """Iterate over the top-level members of an object."""
    at = _past_space(body, body.index(b"{") + 1)
    while body[at] != _CLOSING:
        start, at = at, _past_string(body, at + 1)
        name = msgspec.json.decode(body[start:at], type=str)
        at = value_start = _past_space(body, body.index(b":", at) + 1)
        at = _past_value(body, at)
        yield JsonMember(name, start, value_start, at)
        at = _past_space(body, at)
        if body[at] == _COMMA:
            at = _past_space(body, at + 1)


def _past_space(body: bytes, at: int) -> int:
    if body[at] > 0x20:
        return at
    space = _SPACE.match(body, at)
    return at if space is None else space.end()


def _past_value(body: bytes, at: int) -> int:
    kind = body[at]
    if kind == _QUOTE:
        return _past_string(body, at + 1)
    if kind in _OPENING:
        return _past_container(body, at + 1)
    scalar = _SCALAR.match(body, at)
    assert scalar is not None, "the object is valid JSON"
    return scalar.end()


def _past_string(body: bytes, at: int) -> int:
    """Return the offset behind the string whose first character stands at `at`."""
    while True:
        end = body.index(b'"', at)
        first = end
        while body[first - 1] == _BACKSLASH and first > at:
            first -= 1
        if (end - first) % 2 == 0:
            return end + 1
        at = end + 1


def _past_container(body: bytes, at: int) -> int:
    """Return the offset behind the container whose contents begin at `at`."""
    depth = 1
    while depth:
        run = _SIMPLE_RUN.match(body, at)
        at = at if run is None else run.end()
        kind = body[at]
        at += 1
        if kind == _QUOTE:
            at = _past_string(body, at)
        else:
            depth += 1 if kind in _OPENING else -1
    return at
