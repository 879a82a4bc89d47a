"""Split of program text into statements and members; what stays keeps its syntax."""

from __future__ import annotations

import itertools
import re
from functools import cached_property
from typing import Final, NamedTuple

from gateway.trimming.structure.segment import LineGroup, SegmentNode, TextSegment
from gateway.trimming.structure.syntax import Syntax, syntax_of

DIVIDED_BYTES: Final = 600
"""Size from which a class is divided into its members."""
LARGE_BYTES: Final = 1500
"""Size from which a function, a literal or another statement is divided into what stands within it."""
SMALL_BYTES: Final = 240
"""Size from which any statement is divided where the room is too small for it."""
MAX_DEPTH: Final = 8
"""Depth to which statements are divided; each level reads the lines below once more."""
MAX_LEAD_BYTES: Final = 800
"""Size of the imports that stay with any other statement; further ones go like other statements."""

_STRINGS: Final = r""""(?:[^"\\\n]++|\\.)*+(?:"|(?=\n)|\Z)|'(?:[^'\\\n]++|\\.)*+(?:'|(?=\n)|\Z)"""
_BRACKETS: Final = r"(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<newline>\n)"
_CONDITION: Final = r"^[ \t]*\#[ \t]*(?:(?P<condition>if)(?:n?def)?|(?P<alternative>elif|else)|(?P<end>endif))\b[^\n]*"
_LONG: Final = '"""(?:[^"\\\\]++|\\\\.|"(?!""))*+(?:"""|\\Z)' + r"|'''(?:[^'\\]++|\\.|'(?!''))*+(?:'''|\Z)"
_INDENTED_TOKEN: Final = re.compile(rf"{_LONG}|{_STRINGS}|\#[^\n]*|{_BRACKETS}", re.DOTALL)
_CLASS_OF_REGEX: Final = r"\[(?:[^\]\\\n]|\\.){0,200}\]"
_BRACED_TOKEN: Final = re.compile(
    r"`(?:[^`\\]++|\\.)*+(?:`|\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)"
    rf"|(?:(?<=[=(,:!&|?{{;\[])[ ]?|(?<=return ))/(?![/*\s])(?:[^/\\\n\[]|\\.|{_CLASS_OF_REGEX}){{1,200}}/"
    # What only C++ reads opens a bracket here and closes it elsewhere.
    r"|^[ \t]*\#[ \t]*ifdef[ \t]+__cplusplus\b.{0,2000}?^[ \t]*\#[ \t]*endif[^\n]*"
    rf"|{_CONDITION}|{_STRINGS}|{_BRACKETS}",
    re.DOTALL | re.MULTILINE,
)
_CONTINUES: Final = re.compile(
    r"(?P<word>(?:elif|else|except|finally|catch|then|fi|end|do|done|esac|rescue|ensure|when|where)\b|[)\]}{])"
    r"|[.?:,&|+*=<>%]|-[^-\w]|/[^/*]|\\"
)
_DEFINITION: Final = re.compile(r"[ \t]*(?:async[ \t]+)?(?:def[ \t]+\w+[ \t]*\(|class[ \t]+\w+[ \t]*[(:])")
"""Statement that stands in no bracket where indentation marks blocks: brackets before it have no end."""
_CLAUSE: Final = re.compile(r"(?:elif|elsif|else|except|finally|rescue|ensure)\b")
_OUTER_NAME: Final = re.compile(r"^[ \t]*nonlocal\b", re.MULTILINE)
_ENDS_STATEMENT: Final = re.compile(r"[};]\s*$")
_ATTACHED: Final = re.compile(r"@|#(?!if)|//|/\*|\*|template\b|export default$|async$|pub$")
_UNFINISHED: Final = re.compile(r"(?:[\\,=+*%&|(\[{<.]|[^-]-|[^/*]/|=>|&&|\|\|)\s*$")
_LEAD: Final = re.compile(
    r"import\b|from\b.*\bimport\b|package\b|use\b|using\b|#\s*include\b|#!|require|<\?php"
    r"""|["']use strict|(?:const|let|var)\b.*\brequire\(|extern crate\b|mod\b|module\b"""
)
_CLASS: Final = re.compile(
    r"(?:(?:export|default|public|private|protected|internal|abstract|final|static|sealed|data|open|partial|pub"
    r"|unsafe|declare)(?:\([^)]*\))?\s+)*(?:class|interface|struct|impl|trait|namespace|module|object|extension"
    r"|protocol|mixin|record)\b"
)
_COMMENT: Final = re.compile(
    r"(?:(?<=\s)|^)(?://|\#(?!if|endif))[^\n\"'`]{0,500}$|/\*(?:[^*]|\*(?!/)){0,500}+\*/\s*$", re.MULTILINE
)
"""Comment at the end of a line; a search reads 500 characters from each beginning at most."""
_CLOSES: Final = re.compile(r"\s*(?:[)\]}]|#\s*endif\b)")
_IF: Final = re.compile(r"\s*#\s*if")
_ROW: Final = re.compile(r"\s*\(.*\),\s*$")
_PRIVATE: Final = re.compile(r"^[ \t]*(?:(?:static|async|get|set) )*#\w+\s*[=;(]", re.MULTILINE)
"""Private member of JavaScript, without whose declaration the other members have no meaning."""


class _Line(NamedTuple):
    start: int
    depth: int
    """Brackets open at its start."""
    is_inside: bool
    """True within a string or a comment of several lines."""


def code_group(text: str, language: str = "") -> SegmentNode:
    """Return program text as statements; imports at its beginning stay with every other statement.

    Args:
        text: Program text.
        language: Name that the fence around it gives; empty where the text alone shows it.
    """
    syntax = syntax_of(text, language)
    splitter = _Splitter(text, syntax)
    nodes = splitter.all_nodes()
    lead, num_lead = "", 0
    for node in nodes:
        if not isinstance(node, TextSegment) or not _LEAD.match(_first_code(node.text)):
            break
        if len(lead) + len(node.text) > MAX_LEAD_BYTES:
            break
        lead += node.text
        num_lead += 1
    if num_lead == len(nodes):
        return TextSegment(text)
    group = LineGroup(nodes[num_lead:], mark_line=syntax.mark_line(), opening=lead, divide=splitter.divide)
    group.is_cut_off = splitter.is_cut_off
    return group


def _lines_of(text: str, *, is_indented: bool) -> tuple[list[_Line], int]:
    """Return the lines with the brackets open at the start of each, and those open at the end.

    `#if` to `#endif` counts as a bracket.
    """
    lines, depth = [_Line(0, 0, False)], 0
    token = _INDENTED_TOKEN if is_indented else _BRACED_TOKEN
    conditions: list[tuple[int, int | None]] = []
    for found in token.finditer(text):
        kind = found.lastgroup
        if kind == "newline":
            if depth and is_indented and _DEFINITION.match(text, found.end()):
                depth = 0
            lines.append(_Line(found.end(), depth, False))
        elif kind in ("open", "condition"):
            if kind == "condition":
                conditions.append((depth, None))
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        elif kind in ("alternative", "end") and conditions:
            before, first = conditions.pop()  # each alternative opens the same brackets, so the first one counts
            first = depth if first is None else first
            if kind == "end":
                depth = max(0, first - 1)
            else:
                conditions.append((before, first))
                depth = before + 1
        else:
            begin = text.find("\n", found.start(), found.end())
            while begin >= 0:
                lines.append(_Line(begin + 1, depth, True))
                begin = text.find("\n", begin + 1, found.end())
    return lines if lines[-1].start < len(text) or len(lines) == 1 else lines[:-1], depth


class _Splitter:
    def __init__(self, text: str, syntax: Syntax, least_bytes: int | None = None) -> None:
        """Read the lines.

        Args:
            text: Program text.
            syntax: Its syntax.
            least_bytes: Size from which a statement of any kind is divided; None for the usual sizes.
        """
        self._text = text
        self._syntax = syntax
        self._lines, self._last_depth = _lines_of(text, is_indented=syntax.is_indented)
        self._least_class = DIVIDED_BYTES if least_bytes is None else least_bytes
        self._least_other = LARGE_BYTES if least_bytes is None else least_bytes
        self._level = 0
        """Number of divided statements around the present one."""

    @property
    def is_cut_off(self) -> bool:
        """Return whether a bracket has no end."""
        return self._last_depth > 0

    def all_nodes(self) -> list[SegmentNode]:
        """Return the statements of the text."""
        return self.nodes(0, len(self._lines), 0)

    def divide(self, text: str) -> list[SegmentNode]:
        """Return the statements of a part of the text, with small ones divided too."""
        return _Splitter(text, self._syntax, SMALL_BYTES).all_nodes()

    def nodes(self, first: int, last: int, depth: int) -> list[SegmentNode]:
        """Return the statements of lines `first` to `last`, which begin at this depth of brackets."""
        starts = self._statements(first, last, depth)
        if depth > 0 or first > 0:  # comments alone are no statement, and a body needs one
            heads = [self._head(*span, depth) for span in zip(starts, [*starts[1:], last], strict=True)]
            starts = [first, *(start for start, head in zip(starts[1:], heads[:-1], strict=True) if head is not None)]
            if len(starts) > 1 and heads[-1] is None:
                starts.pop()
        ends = [*starts[1:], last]
        return [self._statement(begin, end, depth) for begin, end in zip(starts, ends, strict=True) if begin < end]

    def _line(self, number: int) -> str:
        end = self._lines[number + 1].start if number + 1 < len(self._lines) else len(self._text)
        return self._text[self._lines[number].start : end]

    def _span(self, first: int, last: int) -> str:
        start = self._lines[first].start if first < len(self._lines) else len(self._text)
        end = self._lines[last].start if last < len(self._lines) else len(self._text)
        return self._text[start:end]

    def _statements(self, first: int, last: int, depth: int) -> list[int]:
        """Return the first line of each statement; decorators and comments belong to what follows them."""
        starts, base, is_bound, before = [first], None, True, ""
        for number in range(first, last):
            line = self._lines[number]
            text = self._line(number)
            stripped = text.strip()
            if not stripped:
                is_bound = is_bound and not self._is_comment(self._line(number - 1) if number > first else "")
                continue
            if line.is_inside or line.depth != depth:
                is_bound, before = False, stripped
                continue
            indent = len(text) - len(text.lstrip())
            if base is None:
                base = indent
            if indent <= base and self._continues(stripped, before):
                if len(starts) > 1 and self._head(starts[-1], number, depth) is None:
                    starts.pop()  # comments before an `else` belong to its `if`
            elif indent <= base and not is_bound:
                starts.append(number)
            # A decorator or a comment takes the next statement with it, an unfinished line its rest.
            if indent <= base:
                is_bound = bool(_ATTACHED.match(stripped)) or bool(_UNFINISHED.search(stripped))
            elif not self._syntax.is_indented:
                is_bound = False
            before = stripped
        return starts

    def _continues(self, stripped: str, before: str) -> bool:
        """Return whether a line continues the statement before it; behind an end, a sign begins a new one."""
        found = _CONTINUES.match(stripped)
        if found is None or found.group("word"):
            return found is not None
        return self._syntax.is_indented or not _ENDS_STATEMENT.search(before)

    def _is_comment(self, line: str) -> bool:
        return line.lstrip().startswith(("#", "//", "/*", "*"))

    def _statement(self, first: int, last: int, depth: int) -> SegmentNode:
        text = self._span(first, last)
        if len(text) < self._least_class:
            return TextSegment(text)
        head = self._head(first, last, depth)
        if head is None:
            return TextSegment(text)
        is_class = _CLASS.match(self._line(head).lstrip()) is not None
        if _PRIVATE.search(text) if is_class else len(text) < self._least_other or _OUTER_NAME.search(text):
            return TextSegment(text)
        if self._level >= MAX_DEPTH:
            return TextSegment(text)
        self._level += 1
        group = self._suite(first, head, last, depth) or self._brackets(first, head, last, depth)
        self._level -= 1
        return group or self._rows(first, last) or TextSegment(text)

    def _head(self, first: int, last: int, depth: int) -> int | None:
        """Return the statement's first line behind comments and decorators."""
        for number in range(first, last):
            line, stripped = self._lines[number], self._line(number).strip()
            if stripped and line.depth == depth and not line.is_inside and not _ATTACHED.match(stripped):
                return number
        return None

    def _suite(self, first: int, head: int, last: int, depth: int) -> SegmentNode | None:
        """Return a statement whose body is indented, below its header; None where it has another shape.

        Of several clauses the longest is divided.
        """
        if not self._syntax.is_indented:
            return None
        outer = self._indent(head)
        clauses = [head, *(n for n in range(head + 1, last) if self._is_clause(n, outer, depth)), last]
        begin, end = max(itertools.pairwise(clauses), key=lambda pair: len(self._span(*pair)))
        body = next((n for n in range(begin + 1, end) if self._is_flush(n, depth) and self._indent(n) > outer), None)
        if body is None:
            return None
        close = next((n for n in range(body, end) if self._is_flush(n, depth) and self._indent(n) <= outer), end)
        return self._group(first, body, close, last, self.nodes(body, close, depth))

    def _is_clause(self, number: int, outer: int, depth: int) -> bool:
        is_flush = self._is_flush(number, depth) and self._indent(number) == outer
        return is_flush and _CLAUSE.match(self._line(number).lstrip()) is not None

    def _is_flush(self, number: int, depth: int) -> bool:
        """Return whether a line begins at this depth of brackets, and is not blank."""
        line = self._lines[number]
        return line.depth == depth and not line.is_inside and bool(self._line(number).strip())

    def _brackets(self, first: int, head: int, last: int, depth: int) -> SegmentNode | None:
        """Return a statement with a bracket over several lines; None where what stands within cannot be divided."""
        body = next((n for n in range(head + 1, last) if self._lines[n].depth > depth and self._line(n).strip()), None)
        if body is None or self._lines[body].is_inside:
            return None
        inner = self._lines[body].depth
        end = next((n for n in range(body, last) if self._is_end(n, inner)), last)
        opening = _COMMENT.sub("", self._span(head, body)).rstrip()
        is_block = opening.endswith("{") or _IF.match(self._line(head)) is not None
        if not is_block and not opening.endswith(("(", "[")):
            return None
        elements = self._elements(body, end, inner)
        if elements is not None:
            ends = [*elements[1:], end]
            if not self._ends_element(ends[-1], elements[-1]):
                end = ends.pop()  # the last one has no comma, so it stays last
                end = elements.pop()
            children = [self._statement(*span, inner) for span in zip(elements, ends, strict=True)]
        elif is_block and not self._syntax.is_indented and (end < last or self._is_open(last, inner)):
            children = self.nodes(body, end, inner)
        else:
            return None
        return self._group(first, body, end, last, children)

    def _elements(self, first: int, last: int, depth: int) -> list[int] | None:
        """Return the first line of each element of a list in brackets; None where commas do not end most of them."""
        starts, base = [first], self._indent(first)
        num_commas = 0
        for number in range(first + 1, last):
            if self._is_flush(number, depth) and self._indent(number) <= base and self._ends_element(number, first):
                starts.append(number)
                num_commas += self._code_before(number).endswith(",")
        return starts if len(starts) > 1 and 2 * num_commas >= len(starts) - 1 else None

    def _ends_element(self, number: int, first: int) -> bool:
        """Return whether an element ends before a line."""
        code = self._code_before(number, first)
        return code.endswith(",") or (not self._syntax.is_indented and code.endswith("}"))

    def _code_before(self, number: int, first: int = 0) -> str:
        """Return the last line of code before a line."""
        before = self._numbers_before[number]
        return self._codes[before] if before >= first else ""

    @cached_property
    def _codes(self) -> list[str]:
        """Lines without comments and white space."""
        return [_COMMENT.sub("", self._line(number)).strip() for number in range(len(self._lines))]

    @cached_property
    def _numbers_before(self) -> list[int]:
        """Number of the last line with code before each line and before the end; -1 without one."""
        return [*itertools.accumulate(range(len(self._codes)), self._last_with_code, initial=-1)]

    def _last_with_code(self, before: int, number: int) -> int:
        return number if self._codes[number] else before

    def _group(self, first: int, body: int, end: int, last: int, children: list[SegmentNode]) -> SegmentNode | None:
        """Return what stands within a statement between its beginning and its end; None where that is too little."""
        if len(children) < 2 and all(isinstance(child, TextSegment) for child in children):
            return None
        if 2 * len(self._span(body, end)) < len(self._span(first, last)):
            return None
        indent = self._line(body)[: self._indent(body)]
        return LineGroup(
            children,
            mark_line=self._syntax.mark_line(indent),
            opening=self._span(first, body),
            closing=self._span(end, last) if end < last else "",
            divide=self.divide,
        )

    def _rows(self, first: int, last: int) -> SegmentNode | None:
        """Return the rows of an INSERT statement; None for other statements. The last row, which ends it, stays."""
        rows = [TextSegment(self._line(number)) for number in range(first + 1, last - 1)]
        if self._syntax.comment != "-- {}" or not rows or not all(_ROW.match(row.text) for row in rows):
            return None
        mark_line, closing = self._syntax.mark_line(), self._span(last - 1, last)
        return LineGroup(rows, mark_line=mark_line, opening=self._line(first), closing=closing)

    def _is_end(self, number: int, inner: int) -> bool:
        """Return whether the line closes the bracket around the members, as its first character."""
        line = self._lines[number]
        return line.depth == inner and not line.is_inside and _CLOSES.match(self._line(number)) is not None

    def _is_open(self, last: int, inner: int) -> bool:
        """Return whether a bracket has no end before a line, as in code that is cut off."""
        depth = self._lines[last].depth if last < len(self._lines) else self._last_depth
        return depth >= inner

    def _indent(self, number: int) -> int:
        line = self._line(number)
        return len(line) - len(line.lstrip())


def _first_code(text: str) -> str:
    """Return the statement without the comments and blank lines before it."""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not (
            stripped.startswith(("//", "/*", "*")) or (stripped[0] == "#" and "include" not in stripped)
        ):
            return stripped
    return ""
