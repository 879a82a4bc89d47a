r"""Patterns of JSON schemas, in a form that the grammar compiler enforces exactly.

The compiler writes a class that holds all of U+0000 to U+001F with every escape of JSON, `\"` and `\\` among them, even
if the class excludes both. Without U+0000 it writes the class exactly. The compiler's form of a pattern therefore
never allows U+0000. It also reads `[`, `&&`, `--` and `~~` inside a class as operators, where ECMA-262 and Python read
characters; they are escaped.
"""

from __future__ import annotations

import re
from typing import Final

_NUL: Final = re.compile(r"\\(?:x00|u0000|U0{8}|[xuU]\{0+\}|0)|\0")
_NO_NUL: Final = r"[^\x00]"
_PROPERTY: Final = re.compile(r"\\[pP](?:\{[^{}]*\}|.)", re.DOTALL)
_ATOM: Final = re.compile(
    r"\\[pP]\{[^{}]*\}|\\[pP].|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\[xuU]\{\w+\}|\\?.", re.DOTALL
)
"""One member of a class, or one end of a range in it."""
_SETS: Final = re.compile(r"\\[dDwWsSpP]")
"""Start of an escape that stands for many characters."""
_GROUP: Final = re.compile(r"\(\?[a-zA-Z]*x")
_ODD_ESCAPES: Final = {r"\<": "<", r"\>": ">"}
"""Escapes that the compiler reads as the ends of a word."""
_OPERATORS: Final = frozenset("[]^&~-")


class UnreadablePatternError(ValueError):
    """A pattern that cannot be brought into the compiler's form; the message says which part."""


def compiler_pattern(pattern: str) -> str:
    """Return a pattern that the compiler enforces, and that matches the same texts but for those with U+0000.

    Raises:
        UnreadablePatternError: The pattern has a part that cannot be translated.
    """
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern[at] == "[":
            part, at = _class(pattern, at)
            parts.append(part)
            continue
        if _NUL.match(pattern, at):
            raise UnreadablePatternError("the character U+0000 is not supported")
        if _GROUP.match(pattern, at):
            raise UnreadablePatternError("the flag x is not supported")
        found = _PROPERTY.match(pattern, at)
        text = found[0] if found is not None else pattern[at : at + (2 if pattern[at] == "\\" else 1)]
        parts.append(f"[{text}&&{_NO_NUL}]" if found is not None else _ODD_ESCAPES.get(text, text))
        at += len(text)
    return "".join(parts)


def _class(pattern: str, start: int) -> tuple[str, int]:
    """Return the compiler's form of the class at `start`, and the position behind it."""
    is_negated = pattern.startswith("[^", start)
    at = first = start + (2 if is_negated else 1)
    members: list[str] = []
    has_nul = False
    while at == first or not pattern.startswith("]", at):
        if pattern.startswith(("[:", "[.", "[="), at):
            raise UnreadablePatternError(f"a class inside a class ({pattern[at : at + 12]}) is not supported")
        low, at = _atom(pattern, at)
        has_nul = has_nul or _NUL.fullmatch(low) is not None or low[:2] in (r"\p", r"\P")
        member = _escaped(low)
        if pattern.startswith("-", at) and not pattern.startswith("-]", at):
            high, at = _atom(pattern, at + 1)
            is_range = not _SETS.match(low) and not _SETS.match(high)
            member += ("-" if is_range else r"\-") + _escaped(high)
            has_nul = has_nul or high[:2] in (r"\p", r"\P")
        members.append(member)
    inner = "".join(members)
    if is_negated:
        return f"[^{inner}\\x00]", at + 1
    return (f"[[{inner}]&&{_NO_NUL}]" if has_nul else f"[{inner}]"), at + 1


def _atom(pattern: str, at: int) -> tuple[str, int]:
    found = _ATOM.match(pattern, at)
    if found is None or found[0] == "\\":
        raise UnreadablePatternError("a class has no end")
    return found[0], found.end()


def _escaped(atom: str) -> str:
    """Return a member of a class without a meaning as an operator."""
    if atom == r"\b":
        return r"\x08"
    return f"\\{atom}" if atom in _OPERATORS else _ODD_ESCAPES.get(atom, atom)
