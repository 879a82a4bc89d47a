"""Escapes in free text, undone one layer at a time. Pure."""

from __future__ import annotations

import re
from typing import Final

_INVISIBLE: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
)
_ESCAPE: Final = re.compile(
    r"%(?P<percent>[0-9A-Fa-f]{2})"
    r"|\\{1,8}u(?P<unicode>[0-9A-Fa-f]{4})"
    r"|\\{1,8}x(?P<hex>[0-9A-Fa-f]{2})"
    r"|\\{1,8}(?P<space>[nrt])"
    r"|\\{1,8}(?P<plain>[-_.:=@/\"'])"
    r"|&#(?P<decimal>[0-9]{1,4});"
    r"|&#[xX](?P<entity>[0-9A-Fa-f]{1,4});"
    r"|&(?P<name>amp|quot|apos|lt|gt);"
    r"|\x1b\[[0-9;?]*[A-Za-z]"
    rf"|[{_INVISIBLE}]"
)
_ENTITIES: Final = {"amp": "&", "quot": '"', "apos": "'", "lt": "<", "gt": ">"}
_BASES: Final = {"percent": 16, "unicode": 16, "hex": 16, "decimal": 10, "entity": 16}


def has_escapes(text: str) -> bool:
    """Return whether `unescape` would change the text."""
    return _ESCAPE.search(text) is not None


def unescape(text: str) -> tuple[str, list[int]]:
    """Return `text` with one layer of escapes undone, and the source index of each character and of the end."""
    parts: list[str] = []
    kept: list[int] = []
    at = 0
    for found in _ESCAPE.finditer(text):
        parts.append(text[at : found.start()])
        kept.extend(range(at, found.start()))
        char = _meaning(found)
        if char:
            parts.append(char)
            kept.append(found.start())
        at = found.end()
    parts.append(text[at:])
    kept.extend(range(at, len(text) + 1))
    return "".join(parts), kept


def _meaning(found: re.Match[str]) -> str:
    """Return the character that an escape represents; empty for an invisible one."""
    kind = found.lastgroup
    if kind is None:
        return ""
    if kind == "space":
        return " "
    if kind == "plain":
        return found[kind]
    return _ENTITIES[found[kind]] if kind == "name" else chr(int(found[kind], _BASES[kind]))
