"""Samples of a pattern: short texts that it is likely to match, for the search; the pattern engine confirms them."""

from __future__ import annotations

from itertools import islice, product
from typing import Final

MAX_SAMPLES: Final = 24
_CLASSES: Final = {"d": "0", "w": "a", "s": " ", "D": "a", "W": " ", "S": "a", "n": "\n", "t": "\t", "b": "", "B": ""}
_OUTSIDE: Final = "~a0 -"


class _Sampler:
    """Reader of one pattern; an unknown construct gives no sample, never a wrong result."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def read(self) -> list[str]:
        """Return samples of the alternatives up to a closing parenthesis or the end."""
        found: list[str] = []
        branch: list[list[str]] = []
        while self._at < len(self._pattern) and self._pattern[self._at] != ")":
            if self._pattern[self._at] == "|":
                self._at += 1
                found += _joined(branch)
                branch = []
            else:
                branch.append(self._repeated(self._piece()))
        return (found + _joined(branch))[:MAX_SAMPLES]

    def _piece(self) -> list[str]:
        char = self._pattern[self._at]
        self._at += 1
        if char == "\\" and self._at < len(self._pattern):
            self._at += 1
            escaped = self._pattern[self._at - 1]
            return [_CLASSES.get(escaped, escaped)]
        if char == "[":
            return [self._of_class()]
        if char == "(":
            return self._group()
        return [""] if char in "^$" else ["a" if char == "." else char]

    def _group(self) -> list[str]:
        if self._pattern.startswith("?", self._at):
            ends = [end for end in (self._pattern.find(sign, self._at) for sign in ":)>") if end >= 0]
            self._at = min(ends, default=len(self._pattern))
            if self._pattern.startswith((":", ">"), self._at):
                self._at += 1
        found = self.read()
        self._at += 1
        return found

    def _of_class(self) -> str:
        end = self._pattern.find("]", self._at + 1)
        inside = self._pattern[self._at : end] if end > 0 else ""
        self._at = end + 1 if end > 0 else len(self._pattern)
        if inside.startswith("^"):
            return next((char for char in _OUTSIDE if char not in inside), "~")
        return _CLASSES.get(inside[1:2], inside[1:2]) if inside.startswith("\\") else inside[:1]

    def _repeated(self, samples: list[str]) -> list[str]:
        sign = self._pattern[self._at : self._at + 1]
        if not sign or sign not in "*+?":
            return samples
        self._at += 1
        if self._pattern.startswith(("?", "+"), self._at):
            self._at += 1
        return samples if sign == "+" else [*samples, ""]


def _joined(pieces: list[list[str]]) -> list[str]:
    return ["".join(parts) for parts in islice(product(*pieces), MAX_SAMPLES)]


def samples_of(pattern: str) -> list[str]:
    """Return texts that a pattern may match, the first alternatives first."""
    return _Sampler(pattern).read()
