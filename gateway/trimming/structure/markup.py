"""Split of XML and HTML at its elements: an element stays with those around it, so tags stay in pairs.

Entities are never expanded: what a document type declares is copied like any text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gateway.trimming.structure.code import code_group
from gateway.trimming.structure.segment import MARK, LineGroup, SegmentGroup, SegmentNode, TextSegment

WHOLE_CHARS: Final = 240
"""Size up to which an element is not divided."""
MAX_DEPTH: Final = 40
"""Depth to which elements are divided; what is nested deeper goes whole."""
MIN_CHARS: Final = 64
"""Length below which markup within prose counts as prose."""
MAX_FAILED: Final = 2
"""Elements whose tags do not match, after which no further one is read; each may cost the rest of the text twice."""
MAX_OPEN: Final = 32
"""Elements without an end, after which no further one is searched for."""

_START: Final = re.compile(r"<(?:(?<=\n.)|(?<!(?s:.).))(?=[A-Za-z_!?])")
"""Beginning of markup at the beginning of a line; the bracket comes first, because it is searched for quickly."""
_NAME: Final = r"[A-Za-z_][\w:.-]*+"
_FIRST_NAME: Final = re.compile(_NAME)
_TOKEN: Final = re.compile(
    rf"<(?:(?P<special>!--|!\[CDATA\[|!DOCTYPE\b|!doctype\b|\?(?!php))|/(?P<closed>{_NAME})\s*+>"
    rf"""|(?P<opened>{_NAME})(?=[\s/>])(?:[^<>"'/]|"[^"<]*"|'[^'<]*'|/(?!>))*+(?P<empty>/)?>)\s*+"""
)
_ENDS: Final = {"!--": "-->", "![CDATA[": "]]>", "?": "?>"}
_DOCTYPE: Final = re.compile(r"""<!(?i:doctype)\b(?:[^\[<>"']|"[^"]*"|'[^']*')*+(?:\[(?P<subset>))?""")
_SUBSET_TOKEN: Final = re.compile(r"""<!--|<\?|"|'|\]\s*+>""")
_SUBSET_ENDS: Final = {"<!--": "-->", "<?": "?>", '"': '"', "'": "'"}
_SPACE: Final = re.compile(r"\s*+")
_LETTER: Final = re.compile(r"<[/A-Za-z]")
_VOID: Final = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
_RAW: Final = frozenset({"script", "style"})
_CUT_ENTITY: Final = re.compile(r"&[^;\s]*\Z")
_MARK_LINE: Final = f"<!-- {MARK} -->\n"
_STRING_MARK: Final = re.compile(r"\"\"\"|'''")

Divide = Callable[[str], Sequence[SegmentNode]]


class MarkupGroup(LineGroup):
    """Content of an element, or elements side by side; a gap between them is marked by a comment."""

    __slots__ = ()


class _Stretch(NamedTuple):
    """Child of an element: a child element, a comment, or text."""

    start: int
    end: int
    node: SegmentNode | None = None
    """Its tree; None where it goes whole, or is text."""
    is_text: bool = False


class _Element:
    """Element that has been opened."""

    __slots__ = ("children", "content_start", "name", "start", "text_start")

    def __init__(self, name: str, start: int, content_start: int) -> None:
        self.name = name
        self.start = start
        self.content_start = content_start
        self.text_start = content_start
        """End of the last child, where text may begin."""
        self.children: list[_Stretch] = []


def markup_spans(text: str, opaque: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return where elements stand that begin at the beginning of a line, those side by side as one.

    Args:
        text: The text.
        opaque: Places of fences, in order; tags within them count as text.
    """
    spans = list[tuple[int, int]]()
    end = num_failed = num_open = 0
    quoted: list[int] | None = None
    starts = [span[0] for span in opaque]
    for found in _START.finditer(text):
        start = found.start()
        if start < end or _end_of_opaque(opaque, starts, start) > start:
            continue
        quoted = _string_bounds(text) if quoted is None else quoted
        if bisect_right(quoted, start) % 2:
            continue
        if num_failed >= MAX_FAILED or num_open >= MAX_OPEN:
            break
        name = _FIRST_NAME.match(text, start + 1)
        if name is not None and text.find(f"</{name.group()}", start) < 0 and not _ends_itself(text, start):
            num_open += 1
            continue
        reader = _read(text, start, opaque)
        if reader is None:
            num_failed += 1
            continue
        end = reader.end
        if end - start >= MIN_CHARS:
            spans.append((start, end))
    return spans


def _ends_itself(text: str, start: int) -> bool:
    """Return whether the tag at a place needs no end, as an element without content."""
    token = _TOKEN.match(text, start)
    return token is not None and (bool(token["empty"]) or str(token["opened"]).lower() in _VOID)


def markup_nodes(text: str, opaque: Sequence[tuple[int, int]], divide: Divide) -> SegmentNode | None:
    """Return a text of elements as a tree; None where its tags do not match.

    Args:
        text: Elements side by side, with nothing but space around them.
        opaque: Places of fences within it.
        divide: Returns the segments of the text within an element.
    """
    start = _space_end(text, 0)
    reader = _read(text, start, opaque, divide)
    if reader is None or reader.end < len(text):
        return None
    nodes = [TextSegment(text[root.start : root.end]) if root.node is None else root.node for root in reader.roots]
    first = nodes[0]
    if start and isinstance(first, SegmentGroup):
        return MarkupGroup(nodes, mark_line=_MARK_LINE, opening=text[:start])
    if start:
        nodes[0] = TextSegment(text[:start] + first.rendered())
    return MarkupGroup(nodes, mark_line=_MARK_LINE)


def _read(text: str, start: int, opaque: Sequence[tuple[int, int]], divide: Divide | None = None) -> _Reader | None:
    """Return what was read of the elements from a place on: as XML, else as HTML; None where neither has an end."""
    for is_html in (False, True):
        reader = _Reader(text, opaque, divide, is_html=is_html)
        if reader.read(start):
            return reader
    return None


class _Reader:
    """One pass over the tags of a text; each element is built when it closes."""

    def __init__(
        self, text: str, opaque: Sequence[tuple[int, int]], divide: Divide | None, *, is_html: bool = False
    ) -> None:
        self._text = text
        self._opaque = opaque
        self._opaque_starts = [span[0] for span in opaque]
        self._divide = divide
        self._is_html = is_html
        self._stack: list[_Element] = []
        self.roots: list[_Stretch] = []
        self.end = 0
        """End of the last element that was read to its end."""

    def read(self, start: int) -> bool:
        """Read elements side by side; return whether there is one at least."""
        text, place, prolog = self._text, start, start
        while True:
            bracket = text.find("<", place) if self._stack else place
            if bracket < 0 or bracket >= len(text):
                break
            behind = _end_of_opaque(self._opaque, self._opaque_starts, bracket)
            if behind > bracket:
                if not self._stack:
                    break
                place = behind
                continue
            token = _TOKEN.match(text, bracket)
            end = self._end_of(token) if token is not None else -1
            if token is None or end < 0:
                if not self._stack or token is not None:  # a comment without an end, or no markup
                    break
                place = bracket + 1
                continue
            if token["special"]:
                if self._stack:
                    self._add(_Stretch(bracket, end, self._literal(token, end)))
                elif self.roots:
                    self._extend_root(end)
                    prolog = end
            elif token["closed"]:
                if not self._close(token["closed"], bracket, end):
                    break
                prolog = end
            else:
                end = self._open(token, prolog if not self._stack else bracket, end)
                if end < 0:
                    break
                prolog = end
            place = end
        return bool(self.roots)

    def _end_of(self, token: re.Match[str]) -> int:
        """Return the end of a token with the space behind it; -1 without one."""
        special = token["special"]
        if not special:
            return token.end()
        if special in _ENDS:
            end = self._text.find(_ENDS[special], token.start() + len(special) + 1)
            return _space_end(self._text, end + len(_ENDS[special])) if end >= 0 else -1
        return _doctype_end(self._text, token.start())

    def _literal(self, token: re.Match[str], end: int) -> SegmentNode | None:
        """Return long literal text as a tree; None for a comment, or where it is short."""
        if self._divide is None or token["special"] != "![CDATA[" or end - token.start() <= WHOLE_CHARS:
            return None
        begin, close = token.start() + len("<![CDATA["), self._text.rindex("]]>", token.start(), end)
        if begin >= close:
            return None
        nodes = self._divide(self._text[begin:close])
        return SegmentGroup(nodes, self._text[token.start() : begin], self._text[close:end])

    def _open(self, token: re.Match[str], start: int, end: int) -> int:
        """Begin an element, and return where its content begins; -1 where it has no end."""
        name = token["opened"]
        if self._is_html:
            name = name.lower()
        if token["empty"] or (self._is_html and name in _VOID):
            self._add(_Stretch(start, end))
            return end
        element = _Element(name, start, end)
        if name.lower() in _RAW:
            return self._raw(element)
        self._stack.append(element)
        return end

    def _raw(self, element: _Element) -> int:
        """Add an element with a script or a style sheet, in which brackets open no tags; return its end."""
        begin = self._text.find(f"</{element.name}", element.content_start)
        close = _TOKEN.match(self._text, begin) if begin >= 0 else None
        if close is None:
            return -1
        body, node = self._text[element.content_start : begin], None
        if self._divide is not None and len(body) > WHOLE_CHARS and not _LETTER.search(body):
            language = "javascript" if element.name == "script" else "css"
            opening = self._text[element.start : element.content_start]
            closing = self._text[begin : close.end()]
            node = MarkupGroup([code_group(body, language)], mark_line=_MARK_LINE, opening=opening, closing=closing)
        self._add(_Stretch(element.start, close.end(), node))
        return close.end()

    def _close(self, name: str, start: int, end: int) -> bool:
        """End the element that was opened last; return whether it has this name."""
        if not self._stack or self._stack[-1].name != (name.lower() if self._is_html else name):
            return False
        self._add_text(start)
        element = self._stack.pop()
        self._add(_Stretch(element.start, end, self._built(element, start, end)))
        return True

    def _add(self, child: _Stretch) -> None:
        if not self._stack:
            self.roots.append(child)
            self.end = child.end
            return
        self._add_text(child.start)
        parent = self._stack[-1]
        parent.children.append(child)
        parent.text_start = child.end

    def _add_text(self, end: int) -> None:
        element = self._stack[-1]
        if end > element.text_start:
            element.children.append(_Stretch(element.text_start, end, is_text=True))
            element.text_start = end

    def _extend_root(self, end: int) -> None:
        """Count comments behind an element outside of any as a part of its end."""
        root = self.roots[-1]
        if isinstance(root.node, SegmentGroup):
            root.node.extend_closing(self._text[root.end : end])
        self.roots[-1] = root._replace(end=end)
        self.end = end

    def _built(self, element: _Element, close: int, end: int) -> SegmentNode | None:
        """Return an element as a tree; None where it is small or deep."""
        if self._divide is None or end - element.start <= WHOLE_CHARS or len(self._stack) >= MAX_DEPTH:
            return None
        nodes: list[SegmentNode] = []
        for child in element.children:
            text = self._text[child.start : child.end]
            if child.node is not None:
                nodes.append(child.node)
            elif child.is_text and len(text) > WHOLE_CHARS:
                nodes += _text_nodes(text, self._divide)
            else:
                nodes.append(TextSegment(text))
        if not nodes:
            return None
        opening, closing = self._text[element.start : element.content_start], self._text[close:end]
        if len(element.children) == 1 and element.children[0].is_text:
            return SegmentGroup(nodes, opening, closing)
        return MarkupGroup(nodes, mark_line=_MARK_LINE, opening=opening, closing=closing)


def _text_nodes(text: str, divide: Divide) -> Sequence[SegmentNode]:
    """Return the segments of the text within an element; one that would cut a reference goes whole."""
    nodes = divide(text)
    if "&" in text:
        for node in nodes[:-1]:
            segments = node.segments() if isinstance(node, SegmentGroup) else (node,)
            if any(_CUT_ENTITY.search(segment.text[-80:].rstrip()) for segment in segments):
                return [TextSegment(text)]
    return nodes


def _doctype_end(text: str, start: int) -> int:
    """Return the end of a document type with the space behind it, declarations in square brackets included."""
    head = _DOCTYPE.match(text, start)
    if head is None:
        return -1
    place = head.end()
    if head["subset"] is None:
        return _space_end(text, place + 1) if text.startswith(">", place) else -1
    while (token := _SUBSET_TOKEN.search(text, place)) is not None:
        if token.group().startswith("]"):
            return _space_end(text, token.end())
        closing = _SUBSET_ENDS[token.group()]
        end = text.find(closing, token.end())
        if end < 0:
            return -1
        place = end + len(closing)
    return -1


def _string_bounds(text: str) -> list[int]:
    """Return where strings of several lines in code begin and end, by turns; marks alone on a line enclose a text."""
    bounds, mark = list[int](), ""
    is_code = False
    for found in _STRING_MARK.finditer(text):
        if mark:
            if found.group() == mark:
                if is_code:
                    bounds.append(found.end())
                mark = ""
            continue
        mark = found.group()
        begin, end = found.start(), found.end()
        is_code = not (begin == 0 or text[begin - 1] == "\n") or text[end : end + 1] not in ("\n", "\r", "")
        if is_code:
            bounds.append(begin)
    return bounds


def _end_of_opaque(opaque: Sequence[tuple[int, int]], starts: Sequence[int], place: int) -> int:
    """Return the end of the opaque stretch that holds a place; the place itself in none."""
    number = bisect_right(starts, place) - 1
    return max(place, opaque[number][1]) if number >= 0 else place


def _space_end(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place
