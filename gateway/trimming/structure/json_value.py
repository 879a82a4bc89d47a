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
MAX_DEPTH: Final = 64
"""Depth to which containers are divided; those with a single one within count as one with it."""
LONG_STRING_CHARS: Final = 1200
"""Length from which a string is divided into sentences."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{},:]|[^\s\[\]{},:"]++', re.DOTALL)
_OPENING: Final = {"[": "]", "{": "}"}
_KEY: Final = re.compile(r'\s*+"(?:[^"\\]++|\\.)*+"\s*+:\s*+', re.DOTALL)
_SPACE: Final = re.compile(r"\s*+")
_ESCAPED: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^u]"
_PIECE: Final = re.compile(rf"(?:[^\\]|{_ESCAPED}){{1,160}}(?:(?<=\s)|\Z)|(?:[^\\]|{_ESCAPED}){{1,160}}|\\")
"""Words of a string with the space behind them, or a part of a longer one."""
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
    __slots__ = ("begin", "children", "closing_begin", "end", "kind", "opening_end", "piece_start")

    def __init__(self, kind: str, begin: int, opening_end: int) -> None:
        self.kind: Literal["list", "object"] = "list" if kind == "[" else "object"
        self.begin = begin
        """Place of its key, or of itself in a list."""
        self.opening_end = opening_end
        self.piece_start = opening_end
        self.closing_begin = self.end = opening_end
        self.children: list[TextSegment | SegmentGroup | _Container] = []


class _Reader:
    """One pass over the tokens of a valid document; the tree is built at its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._stack: list[_Container] = []
        self._built: _Container | None = None
        """Container that has just closed and was large enough to divide."""
        self._value_end = 0
        self._last_string: tuple[int, int] | None = None

    def read(self) -> JsonGroup | None:
        for token in _TOKEN.finditer(self._text):
            mark = self._text[token.start()]
            if mark in _OPENING:
                begin = self._stack[-1].piece_start if self._stack else 0
                self._stack.append(_Container(mark, begin, token.end()))
                self._built, self._last_string = None, None
            elif mark == ",":
                self._end_piece()
                self._stack[-1].piece_start = token.end()
            elif mark in "]}":
                if self._value_end > self._stack[-1].piece_start:
                    self._end_piece()
                self._close(token.end())
                if not self._stack:
                    return self._group(self._built, 0) if self._built is not None else None
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
            container.children.append(self._built)
        elif self._last_string is not None and end - self._last_string[0] >= LONG_STRING_CHARS:
            container.children.append(_string_group(text, begin, self._last_string))
        else:
            container.children.append(TextSegment(text[begin:end]))
        self._built, self._last_string = None, None

    def _close(self, end: int) -> None:
        container = self._stack.pop()
        self._built, self._last_string = None, None
        is_small = end - container.opening_end <= WHOLE_BYTES
        if (is_small and self._stack) or not container.children:
            return
        container.closing_begin, container.end = self._value_end, end
        self._built = container

    def _group(self, container: _Container, depth: int) -> JsonGroup:
        """Return a container as a tree; with a single container within, both are one group."""
        inner = container
        while len(inner.children) == 1 and isinstance(inner.children[0], _Container):
            inner = inner.children[0]
        children = list[SegmentNode]()
        for child in inner.children:
            if not isinstance(child, _Container):
                children.append(child)
            elif depth + 1 < MAX_DEPTH:
                children.append(self._group(child, depth + 1))
            else:
                children.append(TextSegment(self._text[child.begin : child.end]))
        opening, closing = (
            self._text[container.begin : inner.opening_end],
            self._text[inner.closing_begin : container.end],
        )
        return JsonGroup(children, inner.kind, opening, closing)


def string_of_value(text: str, *, is_member: bool) -> StringGroup:
    """Return a value as a string that holds pieces of its text; a string keeps its own spelling.

    Args:
        text: A value, with its key where it is the member of an object.
        is_member: Whether the text begins with a key.
    """
    trailing = text[len(text.rstrip()) :]
    text = text.rstrip()
    key = (_KEY if is_member else _SPACE).match(text)
    begin = key.end() if key is not None else 0
    if text.startswith('"', begin):
        pieces = spelt_pieces(text[begin + 1 : text.rindex('"')])
    else:
        is_ascii = text.isascii()
        pieces = [_escaped(sentence, (), is_ascii=is_ascii) for sentence in sentences_of(text[begin:])]
    return StringGroup([TextSegment(piece) for piece in pieces], text[:begin] + '"', f'"{trailing}')


def spelt_pieces(spelt: str) -> list[str]:
    """Return the content of a string in short pieces, none of which ends within an escape."""
    return _PIECE.findall(spelt)


def _string_group(text: str, begin: int, span: tuple[int, int]) -> SegmentGroup | TextSegment:
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
