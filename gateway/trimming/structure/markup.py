"""Split of XML and HTML at its elements: an element stays with those around it, so tags stay in pairs.

Entities are never expanded: what a document type declares is copied like any text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gateway.trimming.structure.code import code_group
from gateway.trimming.structure.segment import MARK, LineGroup, SegmentGroup, SegmentNode, TextSegment

WHOLE_CHARS: Final = 240
"""Size up to which an element is not divided."""
MAX_DEPTH: Final = 64
"""Depth to which elements are divided; those with a single one within count as one with it."""
MIN_CHARS: Final = 64
"""Length below which markup within prose counts as prose."""
MAX_SPARE_PASSES: Final = 4
"""Lengths of the text that may be read for elements that turn out to have no end; no further one is read then."""

MIN_LABELLED_CHARS: Final = 1200
"""Length below which an element behind a label on its line belongs to that line."""
MAX_INDENT: Final = 40
"""Columns up to which an element may be indented."""

_START: Final = re.compile(r"<(?=[^\W\d]|[!?])")
_NEW_LINE: Final = re.compile(r"(?:\A|(?:\A|\n|[:：])[^\S\n]*\n)[ \t]+\Z")
"""Text before an element that is indented: a blank line, or one with a colon at its end."""
_NAME: Final = r"[^\W\d][\w:.-]*+"
_CLOSED: Final = re.compile(rf"</({_NAME})\s*+>")
_TOKEN: Final = re.compile(
    rf"<(?:(?P<special>!--|!\[CDATA\[|!DOCTYPE\b|!doctype\b|\?(?!php))|/(?P<closed>{_NAME})\s*+>"
    rf"""|(?P<opened>{_NAME})(?=[\s/>])(?:[^<>"'/]|"[^"<]*"|'[^'<]*'|"[^"\n]{{0,500}}"|'[^'\n]{{0,500}}'|/(?!>))*+"""
    r"(?P<empty>/)?>)\s*+"
)
_ENDS: Final = {"!--": "-->", "![CDATA[": "]]>", "?": "?>"}
_DOCTYPE: Final = re.compile(r"""<!(?i:doctype)\b(?:[^\[<>"']|"[^"]*"|'[^']*')*+(?:\[(?P<subset>))?""")
_SUBSET_TOKEN: Final = re.compile(r"""<!--|<\?|"|'|\]\s*+>""")
_SUBSET_ENDS: Final = {"<!--": "-->", "<?": "?>", '"': '"', "'": "'"}
_SPACE: Final = re.compile(r"\s*+")
_LETTER: Final = re.compile(r"</?[^\W\d]")
_VOID: Final = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
_RAW_ENDS: Final = {name: re.compile(rf"</{name}\s*+>\s*+", re.IGNORECASE) for name in ("script", "style")}
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
    element: _Element | None = None
    """Element that is large enough to divide."""


class _Element:
    """Element that has been opened."""

    __slots__ = (
        *("children", "close", "content_start", "end", "frame", "is_merged", "level", "name", "node", "start"),
        "text_start",
    )

    def __init__(self, name: str, start: int, content_start: int) -> None:
        self.name = name
        self.start = start
        self.content_start = content_start
        self.text_start = content_start
        """End of the last child, where text may begin."""
        self.children: list[_Stretch] = []
        self.close = self.end = content_start
        """Beginning and end of the element's end tag."""
        self.level = 0
        """Number of groups around it."""
        self.is_merged = False
        """True where it is one group with the single element within."""
        self.frame: _Element = self
        """Outermost of the elements that are one group with it."""
        self.node: SegmentNode | None = None


def markup_spans(text: str, opaque: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return where elements and comments stand that begin a line or follow its label, those side by side as one.

    Args:
        text: The text.
        opaque: Places of fences, in order; tags within them count as text.
    """
    spans = list[tuple[int, int]]()
    end, num_spare, source = 0, MAX_SPARE_PASSES * len(text), _Source(text, opaque)
    quoted: list[int] | None = None
    is_diff = "\n@@ -" in text  # its lines are indented by their signs
    for found in _START.finditer(text):
        start = found.start()
        is_first = start == 0 or text[start - 1] == "\n"
        if (
            start < end
            or (is_diff and not is_first)
            or (least := _least_chars(text, start)) < 0
            or source.behind_opaque(start) > start
        ):
            continue
        quoted = _string_bounds(text) if quoted is None else quoted
        if bisect_right(quoted, start) % 2:
            continue
        if num_spare < 0:
            break
        reader = _Reader(source, None)
        is_read = reader.read(start)
        num_spare -= reader.reached - max(start, reader.end)
        if is_read and reader.end - start >= least:
            end = reader.end
            spans.append((start, end))
        elif is_read:
            end = reader.roots[0].end
    return spans


def _least_chars(text: str, start: int) -> int:
    """Return the length from which an element at a place counts as markup; -1 where none may begin."""
    if start == 0 or text[start - 1] == "\n":
        return 0 if text.startswith("<!--", start) else MIN_CHARS
    if text[start - 1] not in " \t":
        return -1
    if start > 1 and text[start - 2] in ":：":
        return MIN_LABELLED_CHARS
    return MIN_CHARS if _NEW_LINE.search(text, max(0, start - MAX_INDENT), start) else -1


def markup_nodes(text: str, opaque: Sequence[tuple[int, int]], divide: Divide) -> SegmentNode | None:
    """Return a text of elements as a tree; None where its tags do not match.

    Args:
        text: Elements side by side, with nothing but space around them.
        opaque: Places of fences within it.
        divide: Returns the segments of the text within an element.
    """
    start = _space_end(text, 0)
    reader = _Reader(_Source(text, opaque), divide)
    if not reader.read(start) or reader.end < len(text):
        return None
    nodes = [reader.node_of(root) or TextSegment(text[root.start : root.end]) for root in reader.built_roots()]
    first = nodes[0]
    if start and isinstance(first, SegmentGroup):
        return MarkupGroup(nodes, mark_line=_MARK_LINE, opening=text[:start])
    if start:
        nodes[0] = TextSegment(text[:start] + first.rendered())
    return MarkupGroup(nodes, mark_line=_MARK_LINE)


class _Source:
    """Text with what each pass over its tags looks up."""

    def __init__(self, text: str, opaque: Sequence[tuple[int, int]]) -> None:
        self.text = text
        self._opaque = opaque
        self._opaque_starts = [span[0] for span in opaque]
        self._last_ends = {found.group(1).lower(): found.start() for found in _CLOSED.finditer(text)}
        """Place of the last end tag of each name."""
        self._last: dict[str, int] = {}

    def behind_opaque(self, place: int) -> int:
        """Return the end of the opaque stretch that holds a place; the place itself in none."""
        number = bisect_right(self._opaque_starts, place) - 1
        return max(place, self._opaque[number][1]) if number >= 0 else place

    def has_end(self, name: str, place: int) -> bool:
        """Return whether an end tag of this name stands behind a place."""
        return self._last_ends.get(name, -1) > place

    def find(self, mark: str, place: int) -> int:
        """Return where a mark stands next; -1 where it does not, known without a search from its last place."""
        if mark not in self._last:
            self._last[mark] = self.text.rfind(mark)
        return self.text.find(mark, place) if self._last[mark] >= place else -1


class _Reader:
    """One pass over the tags of a text; trees are built at its end, those within others first.

    A tag without a partner is text like any other: one whose name no end tag has, or none before its parent ends.
    """

    def __init__(self, source: _Source, divide: Divide | None) -> None:
        self._source = source
        self._text = source.text
        self._divide = divide
        self._stack: list[_Element] = []
        self._num_open: Counter[str] = Counter()
        self._closed: list[_Element] = []
        """Elements that are large enough to divide, in the order of their ends."""
        self.roots: list[_Stretch] = []
        self.end = 0
        """End of the last element that was read to its end."""
        self.reached = 0
        """Place up to which the text was read."""

    def read(self, start: int) -> bool:
        """Read elements side by side; return whether there is one at least."""
        text, place, prolog = self._text, start, start
        while True:
            self.reached = place
            bracket = text.find("<", place) if self._stack else place
            if bracket < 0:
                self.reached = len(text)
            if bracket < 0 or bracket >= len(text):
                break
            behind = self._source.behind_opaque(bracket)
            token = _TOKEN.match(text, bracket) if behind == bracket else None
            end = self._end_of(token) if token is not None else -1
            if token is not None and end >= 0:
                end = self._take(token, prolog if not self._stack else bracket, end)
            if end < 0:
                if not self._stack:
                    break
                place = max(behind, bracket + 1)
                continue
            place = end
            if self.end == end:
                prolog = end
        return bool(self.roots)

    def _take(self, token: re.Match[str], start: int, end: int) -> int:
        """Take a token, and return where the text goes on behind it; -1 where it has no partner."""
        if token["special"]:
            if self._stack:
                self._add(_Stretch(start, end, self._literal(token, end)))
            elif start == token.start() and token["special"] == "!--":
                self._add(_Stretch(start, end))
            elif self.roots:
                self._extend_root(end)
            return end
        if token["closed"]:
            return self._close(token["closed"].lower(), token.start(), end)
        return self._open(token, start, end)

    def _end_of(self, token: re.Match[str]) -> int:
        """Return the end of a token with the space behind it; -1 without one."""
        special = token["special"]
        if not special:
            return token.end()
        if special in _ENDS:
            end = self._source.find(_ENDS[special], token.start() + len(special) + 1)
            return _space_end(self._text, end + len(_ENDS[special])) if end >= 0 else -1
        if self._stack:
            return -1
        end = _doctype_end(self._text, token.start())
        self.reached = len(self._text) if end < 0 else end
        return end

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
        name = token["opened"].lower()
        has_end = not token["empty"] and self._source.has_end(name, token.start())
        if not has_end:
            if not token["empty"] and name not in _VOID:
                return -1
            self._add(_Stretch(start, end))
            return end
        element = _Element(name, start, end)
        if name in _RAW_ENDS:
            return self._raw(element)
        if self._stack:
            self._add_text(start)
        self._stack.append(element)
        self._num_open[name] += 1
        return end

    def _raw(self, element: _Element) -> int:
        """Add an element with a script or a style sheet, in which brackets open no tags; return its end."""
        close = _RAW_ENDS[element.name].search(self._text, element.content_start)
        if close is None:
            return -1
        body = self._text[element.content_start : close.start()]
        node: SegmentGroup | None = None
        opening = self._text[element.start : element.content_start]
        if self._divide is not None and len(body) > WHOLE_CHARS:
            if "json" in opening:
                node = SegmentGroup(self._divide(body), opening, close.group())
            elif not _LETTER.search(body):
                code = code_group(body, "javascript" if element.name == "script" else "css")
                node = MarkupGroup([code], mark_line=_MARK_LINE, opening=opening, closing=close.group())
        self._add(_Stretch(element.start, close.end(), node))
        return close.end()

    def _close(self, name: str, start: int, end: int) -> int:
        """End the element of a name that was opened last, and return its end; -1 where none is open.

        The tags of those within it that have no end become text.
        """
        if not self._num_open[name]:
            return -1
        self._add_text(start)
        number = len(self._stack) - 1
        while self._stack[number].name != name:
            number -= 1
        element, *inner = self._stack[number:]
        del self._stack[number:]
        self._num_open.subtract(each.name for each in (element, *inner))
        for each in inner:
            element.children += [_Stretch(each.start, each.content_start, is_text=True), *each.children]
        if self._divide is None or end - element.start <= WHOLE_CHARS:
            self._add(_Stretch(element.start, end))
            return end
        element.close, element.end = start, end
        element.children = _joined(element.children)
        self._closed.append(element)
        self._add(_Stretch(element.start, end, element=element))
        return end

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
        """Count what stands behind an element outside of any, and is none, as a part of its end."""
        root = self.roots[-1]
        if root.element is not None:
            root.element.end = end
        elif isinstance(root.node, SegmentGroup):
            root.node.extend_closing(self._text[root.end : end])
        self.roots[-1] = root._replace(end=end)
        self.end = end

    def built_roots(self) -> Sequence[_Stretch]:
        """Build the trees of all elements, and return what stands side by side."""
        for element in reversed(self._closed):  # those around others first
            only = element.children[0].element if len(element.children) == 1 else None
            if only is not None:
                element.is_merged, only.level, only.frame = True, element.level, element.frame
                continue
            for child in element.children:
                if child.element is not None:
                    child.element.level = element.level + 1
        for element in self._closed:
            only = element.children[0].element if element.is_merged else None
            element.node = self._built(element) if only is None else only.node
        return self.roots

    def node_of(self, stretch: _Stretch) -> SegmentNode | None:
        """Return the tree of a stretch; None where it goes whole, or is text."""
        return stretch.node if stretch.element is None else stretch.element.node

    def _built(self, element: _Element) -> SegmentNode | None:
        """Return an element as a tree, with those around it that hold nothing else; None where it is deep."""
        if self._divide is None or element.level >= MAX_DEPTH:
            return None
        nodes: list[SegmentNode] = []
        for child in element.children:
            text, node = self._text[child.start : child.end], self.node_of(child)
            if node is not None:
                nodes.append(node)
            elif child.is_text and len(text) > WHOLE_CHARS:
                nodes += self._divide(text)
            else:
                nodes.append(TextSegment(text))
        if not nodes:
            return None
        opening = self._text[element.frame.start : element.content_start]
        closing = self._text[element.close : element.frame.end]
        if len(element.children) == 1 and element.children[0].is_text:
            return SegmentGroup(nodes, opening, closing)
        return MarkupGroup(nodes, mark_line=_MARK_LINE, opening=opening, closing=closing)


def _joined(children: Sequence[_Stretch]) -> list[_Stretch]:
    """Return the children of an element with texts side by side as one."""
    joined: list[_Stretch] = []
    for child in children:
        if child.is_text and joined and joined[-1].is_text:
            joined[-1] = joined[-1]._replace(end=child.end)
        else:
            joined.append(child)
    return joined


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
    return bounds[: len(bounds) // 2 * 2]  # a mark without a partner encloses nothing


def _space_end(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place
