r"""Patterns of JSON schemas, in a form that the grammar compiler enforces exactly.

Patterns follow ECMA-262 with its flag `u`: characters are code points. The exceptions:

- No part of a pattern matches U+0000.
- Errors of that flag alone are read as without it: a needless `\` before a sign, and a `{` that begins no count.
- Python's `(?i)`, `(?i:…)`, `(?P<name>…)`, `\A` and `\z` are read, and `(?s)` where a pattern begins with it. So are
  `\x{…}`, `\UXXXXXXXX` and `\pL`.
- Not translated are look-around, references to groups, other flags, halves of surrogate pairs and `{,`.
- Nor are `\b` outside of classes, `\B`, `\Z`, `\c` and other escapes of one language only.
- Nor are classes that begin with `]` or hold `[:`, `[.` or `[=`, nor `^` or `$` in the middle or in a repeated group.

The compiler's own language differs in several ways. Its `.` matches carriage returns and line separators, and its `\s`
is that of Unicode. It writes a class that holds all of U+0000 to U+001F with every escape of JSON, `\"` and `\\` among
them, even if the class excludes both. Without U+0000 it writes the class exactly. It also reads `[`, `&&`, `--` and
`~~` inside a class as operators; they are escaped.
"""

from __future__ import annotations

import re
from typing import Final

from engine.frontend.schemas.pattern_anchors import has_unreadable_anchor

_NUL: Final = r"\x00"
_NO_NUL: Final = r"[^\x00]"
_NO_LINE_END: Final = r"[^\n\r\u2028\u2029\x00]"
_SPACE: Final = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_SPACE_SETS: Final = {r"\s": _SPACE, r"\S": f"[^{_SPACE}]"}
"""Members of a class in place of the escapes for white space."""
_SET: Final = re.compile(r"\\[dDwWsSpP]")
"""Start of an escape that stands for many characters."""
_SET_WITH_NUL: Final = re.compile(r"\\[DWSpP]")
_ESCAPE: Final = re.compile(
    r"\\(?:[dDwWsStnrfv]|[pP](?:\{[^{}]*\}|[A-Z])|(?P<sign>[^A-Za-z0-9])|(?P<nul>0(?![0-9]))"
    r"|(?P<number>x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[xuU]\{[0-9A-Fa-f]+\}))",
    re.DOTALL,
)
_ALL_CHARACTERS: Final = re.compile(r"\(\?(?:i?s|si)\)")
"""Flags at the start of a pattern after which `.` matches ends of lines too."""
_GROUP: Final = re.compile(r"\((?:(?!\?)|\?:|\?-?i[:)]|(?P<name>\?P?<(?![=!])[^<>]+>))")
_COUNT: Final = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_OPERATORS: Final = frozenset("[]^&~-")


class UnreadablePatternError(ValueError):
    """A pattern that cannot be brought into the compiler's form; the message says which part."""


def compiler_pattern(pattern: str) -> str:
    """Return a pattern that the compiler enforces, and that matches the same texts but for those with U+0000.

    Raises:
        UnreadablePatternError: The pattern has a part that cannot be translated.
    """
    flags = _ALL_CHARACTERS.match(pattern)
    parts = [] if flags is None else [flags[0]]
    dot = _NO_LINE_END if flags is None else _NO_NUL
    at = 0 if flags is None else flags.end()
    while at < len(pattern):
        part, at = _class(pattern, at) if pattern[at] == "[" else _part(pattern, at, dot)
        parts.append(part)
    if has_unreadable_anchor(parts):
        raise UnreadablePatternError("^ or $ in the middle or in a repeated group is not supported")
    return "".join(parts)


def _part(pattern: str, at: int, dot: str) -> tuple[str, int]:
    """Return the compiler's form of the part outside of classes at `at`, and the position behind it."""
    if pattern.startswith("(", at):
        group = _GROUP.match(pattern, at)
        if group is None:
            raise UnreadablePatternError(f"the group {pattern[at : at + 3]} is not supported")
        return "(" if group["name"] else group[0], group.end()
    if pattern.startswith("{", at):
        count = _COUNT.match(pattern, at)
        if count is None and pattern.startswith("{,", at):
            raise UnreadablePatternError("a count without a least number is not supported")
        return (r"\{", at + 1) if count is None else (count[0], count.end())
    if pattern.startswith((r"\A", r"\z"), at):
        return pattern[at : at + 2], at + 2
    if not pattern.startswith("\\", at):
        return _checked(dot if pattern[at] == "." else pattern[at]), at + 1
    text, at = _escape(pattern, at)
    if _SET_WITH_NUL.match(text):
        return f"[{_SPACE_SETS.get(text, text)}&&{_NO_NUL}]", at
    return f"[{_SPACE}]" if text == r"\s" else _checked(text), at


def _class(pattern: str, start: int) -> tuple[str, int]:
    """Return the compiler's form of the class at `start`, and the position behind it."""
    is_negated = pattern.startswith("[^", start)
    at = start + (2 if is_negated else 1)
    if pattern.startswith("]", at):
        raise UnreadablePatternError("a class that begins with ] is not supported")
    members: list[str] = []
    has_nul = False
    while not pattern.startswith("]", at):
        if pattern.startswith(("[:", "[.", "[="), at):
            raise UnreadablePatternError(f"a class inside a class ({pattern[at : at + 12]}) is not supported")
        low, at = _atom(pattern, at)
        ends = [low]
        if pattern.startswith("-", at) and not pattern.startswith("-]", at):
            high, at = _atom(pattern, at + 1)
            ends.append(high)
        has_nul = has_nul or any(end == _NUL or _SET_WITH_NUL.match(end) for end in ends)
        is_range = not any(map(_SET.match, ends))
        members.append(("-" if is_range else r"\-").join(_SPACE_SETS.get(end, end) for end in ends))
    inner = "".join(members)
    if is_negated:
        return f"[^{inner}{_NUL}]", at + 1
    return (f"[[{inner}]&&{_NO_NUL}]" if has_nul else f"[{inner}]"), at + 1


def _atom(pattern: str, at: int) -> tuple[str, int]:
    """Return the member of a class, or end of a range, at `at`, never an operator, and the position behind it."""
    if at >= len(pattern):
        raise UnreadablePatternError("a class has no end")
    if pattern.startswith(r"\b", at):
        return r"\x08", at + 2
    if pattern.startswith("\\", at):
        return _escape(pattern, at)
    char = pattern[at]
    return _NUL if char == "\0" else f"\\{char}" if char in _OPERATORS else char, at + 1


def _escape(pattern: str, at: int) -> tuple[str, int]:
    """Return the compiler's form of the escape at `at`, and the position behind it."""
    found = _ESCAPE.match(pattern, at)
    if found is None:
        raise UnreadablePatternError(f"{pattern[at : at + 2]} is not supported")
    code = int(found["number"][1:].strip("{}"), 16) if found["number"] else None
    if code is not None and 0xD800 <= code <= 0xDFFF:
        raise UnreadablePatternError(f"half of a surrogate pair ({found[0]}) is not supported")
    if found["nul"] or code == 0:
        return _NUL, found.end()
    sign = found["sign"]
    # The compiler reads `\<` and `\>` as the ends of a word, and only knows signs of ASCII.
    return sign if sign and (sign in "<>" or not sign.isascii()) else found[0], found.end()


def _checked(part: str) -> str:
    if part in ("\0", _NUL):
        raise UnreadablePatternError("the character U+0000 is not supported")
    return part
