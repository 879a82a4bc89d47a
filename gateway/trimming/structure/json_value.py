"""Split of a JSON document at its own structure: members and elements go whole, and what stays is valid JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, Literal

from gateway.trimming.structure.segment import SegmentGroup, SegmentNode, TextSegment
from gateway.trimming.structure.sentences import sentences_of

WHOLE_BYTES: Final = 240
"""Size up to which a container is not divided."""
MAX_DEPTH: Final = 40
"""Depth to which containers are divided; what is nested deeper goes whole."""
LONG_STRING_CHARS: Final = 1200
"""Length from which a string is divided into sentences."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{},:]|[^\s\[\]{},:"]++', re.DOTALL)
_OPENING: Final = {"[": "]", "{": "}"}
_STRING_MARK: Final = "[…] "
_MARK_BYTES: Final = 28


class JsonGroup(SegmentGroup):
    """Container of a JSON document; retained children are joined by commas, and a marker element counts the others."""

    __slots__ = ("kind",)

    def __init__(
        self, children: Sequence[SegmentNode], kind: Literal["list", "object"], opening: str, closing: str
    ) -> None:
        super().__init__(children, opening, closing)
        self.kind = kind

    def mark_bytes(self, last: SegmentNode) -> int:
        """Return the most bytes of one mark, the comma behind it included."""
        return _MARK_BYTES

    def gap_change(self, child: SegmentNode) -> int:
        """Return the most bytes by which marks and commas grow when the dropped child is retained."""
        if self.kind == "object":  # one mark counts all that is left out
            return 1 if self.is_retained or len(self.children) == 1 else 1 + _MARK_BYTES
        return super().gap_change(child) + 1

    def rendered(self) -> str:
        """Return the container without its dropped children."""
        parts: list[str] = []
        num_dropped = sum(not child.is_retained for child in self.children) if self.kind == "object" else 0
        run = 0
        is_marked = False
        for child in (*self.children, None):
            if child is not None and not child.is_retained:
                run += 1
                continue
            if run and self.kind == "list":
                parts.append(f'"[… {run} left out]"')
            elif run and not is_marked:  # a second member of the same name would replace the first
                parts.append(f'"[…]":"{num_dropped} left out"')
                is_marked = True
            run = 0
            if child is not None:
                parts.append(child.rendered())
        return f"{self.opening}{','.join(parts)}{self.closing}"


class StringGroup(SegmentGroup):
    """Sentences of a long string of a JSON document, in its own spelling."""

    __slots__ = ()

    def mark_bytes(self, last: SegmentNode) -> int:
        """Return the bytes of the mark of a gap."""
        return len(_STRING_MARK.encode())

    def mark(self, dropped: Sequence[SegmentNode]) -> str:
        """Return the mark of a gap, which needs no escape."""
        return _STRING_MARK


def json_group(text: str) -> JsonGroup | None:
    """Return a valid JSON object or list as a tree; None where the text is another value."""
    return _Reader(text).read()


class _Container:
    __slots__ = ("children", "kind", "opening_end", "piece_start")

    def __init__(self, kind: str, opening_end: int) -> None:
        self.kind = kind
        self.opening_end = opening_end
        self.piece_start = opening_end
        self.children: list[SegmentNode] = []


class _Reader:
    """One pass over the tokens of a valid document; each container is built when it closes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._stack: list[_Container] = []
        self._built: JsonGroup | None = None
        """Container that has just closed and was large enough to divide."""
        self._value_end = 0
        self._last_string: tuple[int, int] | None = None

    def read(self) -> JsonGroup | None:
        for token in _TOKEN.finditer(self._text):
            mark = self._text[token.start()]
            if mark in _OPENING:
                self._stack.append(_Container(mark, token.end()))
                self._built, self._last_string = None, None
            elif mark == ",":
                self._end_piece()
                self._stack[-1].piece_start = token.end()
            elif mark in "]}":
                if self._value_end > self._stack[-1].piece_start:
                    self._end_piece()
                group = self._close(token.end())
                if not self._stack:
                    return group
            elif mark != ":":
                self._built = None
                self._last_string = token.span() if mark == '"' else None
            if mark not in ",:":
                self._value_end = token.end()
        return None

    def _end_piece(self) -> None:
        container, text = self._stack[-1], self._text
        begin, end = container.piece_start, self._value_end
        if self._built is not None:
            node: SegmentNode = self._built
            container.children.append(node)
        elif self._last_string is not None and end - self._last_string[0] >= LONG_STRING_CHARS:
            container.children.append(_string_group(text, begin, self._last_string))
        else:
            container.children.append(TextSegment(text[begin:end]))
        self._built, self._last_string = None, None

    def _close(self, end: int) -> JsonGroup | None:
        container = self._stack.pop()
        begin = self._stack[-1].piece_start if self._stack else 0
        self._built, self._last_string = None, None
        is_small = end - container.opening_end <= WHOLE_BYTES or len(self._stack) >= MAX_DEPTH
        if (is_small and self._stack) or not container.children:
            return None
        text = self._text
        closing = text[self._value_end : end]
        kind: Literal["list", "object"] = "list" if container.kind == "[" else "object"
        self._built = JsonGroup(container.children, kind, text[begin : container.opening_end], closing)
        return self._built


def _string_group(text: str, begin: int, span: tuple[int, int]) -> SegmentNode:
    """Return a long string as sentences; `span` is that of the string, `begin` that of its key or of itself."""
    spelt = text[span[0] : span[1]]
    spoken = json.loads(spelt, strict=False)
    hidden = [sign for sign in "<>&" if spoken.count(sign) != spelt.count(sign)]
    if any(sign in spelt for sign in hidden):  # spelt in two ways
        return TextSegment(text[begin : span[1]])
    is_ascii = spelt.isascii()
    pieces = [TextSegment(_escaped(sentence, hidden, is_ascii=is_ascii)) for sentence in sentences_of(spoken)]
    return StringGroup(pieces, text[begin : span[0]] + '"', '"')


def _escaped(text: str, hidden: Sequence[str], *, is_ascii: bool) -> str:
    """Return the text as it stands in a string; `hidden` are signs of markup that have no place in it."""
    has_surrogates = any("\ud800" <= character <= "\udfff" for character in text) if not is_ascii else True
    spelt = json.dumps(text, ensure_ascii=is_ascii or has_surrogates)[1:-1]
    for sign in hidden:
        spelt = spelt.replace(sign, f"\\u{ord(sign):04x}")
    return spelt
