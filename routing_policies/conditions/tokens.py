"""Tokens of a condition, with their positions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

Kind = Literal["number", "string", "name", "sign", "end"]

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>\d+\.\d+|\d+)
    |(?P<string>"(?:[^"\\\n]|\\["\\nt'.*+?()\[\]^$|dwsbDWSB])*"|'(?:[^'\\\n]|\\["\\nt'.*+?()\[\]^$|dwsbDWSB])*')
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[<>!()\[\].,?:+\-*/%])""",
    re.VERBOSE,
)


class ConditionError(ValueError):
    """Error for an invalid condition; `at` is the position of the character, from 1."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(f"{message} (at character {at})")
        self.at = at


class ConditionToken(NamedTuple):
    """One token."""

    kind: Kind
    text: str
    at: int
    """Position of its first character, from 1."""


def tokens(source: str) -> Iterator[ConditionToken]:
    """Yield every token, then the end; raises ConditionError for an invalid character."""
    position = 0
    while position < len(source):
        found = _TOKEN.match(source, position)
        if found is None:
            raise ConditionError(f"{source[position]!r} is not valid here", position + 1)
        kind = found.lastgroup
        if kind in ("number", "string", "name", "sign"):
            yield ConditionToken(kind, found.group(), position + 1)  # type: ignore[arg-type]
        position = found.end()
    yield ConditionToken("end", "", len(source) + 1)
