"""JSON of long values in parts: one call of the encoder holds the interpreter's lock to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gateway.chat.json_members import encoded

_LONG_CHARS: Final = 64 * 1024
_DEPTH: Final = 7
"""Containers that are entered: the request, its messages, one of them, its parts, one of them, an image."""


def encoded_in_parts(document: dict[str, Any]) -> bytes:
    """Return an object as JSON; long strings and lists near its top are encoded piece by piece."""
    return b"".join(_pieces(document, _DEPTH))


def _pieces(value: Any, depth: int) -> Iterator[bytes]:
    if isinstance(value, str) and len(value) > _LONG_CHARS:
        yield from _text(value)
    elif depth == 0 or not value or not isinstance(value, dict | list):
        yield encoded(value)
    elif isinstance(value, list):
        yield from _list(value, depth)
    else:
        yield from _object(value, depth)


def _text(value: str) -> Iterator[bytes]:
    yield b'"'
    for at in range(0, len(value), _LONG_CHARS):
        yield encoded(value[at : at + _LONG_CHARS])[1:-1]
    yield b'"'


def _list(items: list[Any], depth: int) -> Iterator[bytes]:
    mark = b"["
    for item in items:
        yield mark
        yield from _pieces(item, depth - 1)
        mark = b","
    yield b"]"


def _object(members: dict[str, Any], depth: int) -> Iterator[bytes]:
    mark = b"{"
    for name, member in members.items():
        yield b"%b%b:" % (mark, encoded(name))
        yield from _pieces(member, depth - 1)
        mark = b","
    yield b"}"
