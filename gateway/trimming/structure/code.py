"""Split of program text into statements and members; what stays keeps its syntax."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gateway.trimming.structure.segment import MARK, LineGroup, SegmentNode, TextSegment

DIVIDED_BYTES: Final = 600
"""Size from which a class is divided into its members."""
MAX_LEAD_BYTES: Final = 800
"""Size of the imports that stay with any other statement; further ones go like other statements."""

_STRINGS: Final = r""""(?:[^"\\\n]++|\\.)*+(?:"|(?=\n)|\Z)|'(?:[^'\\\n]++|\\.)*+(?:'|(?=\n)|\Z)"""
_BRACKETS: Final = r"(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<newline>\n)"
_LONG: Final = '"""(?:[^"\\\\]++|\\\\.|"(?!""))*+(?:"""|\\Z)' + r"|'''(?:[^'\\]++|\\.|'(?!''))*+(?:'''|\Z)"
_INDENTED_TOKEN: Final = re.compile(rf"{_LONG}|{_STRINGS}|\#[^\n]*|{_BRACKETS}", re.DOTALL)
_CLASS_OF_REGEX: Final = r"\[(?:[^\]\\\n]|\\.){0,200}\]"
_BRACED_TOKEN: Final = re.compile(
    r"`(?:[^`\\]++|\\.)*+(?:`|\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)"
    rf"|(?:(?<=[=(,:!&|?{{;\[])[ ]?|(?<=return ))/(?![/*\s])(?:[^/\\\n\[]|\\.|{_CLASS_OF_REGEX}){{1,200}}/"
    rf"|{_STRINGS}|{_BRACKETS}",
    re.DOTALL,
)
_INDENTED: Final = re.compile(
    r"^[ \t]*(?:(?:async )?def \w+\s*\(|class \w+\s*[(:]|(?:if|for|while|with|try|elif|else"
    r"|except)\b[^\n{;]*:[ \t]*(?:#|$)"
    r"|from [\w.]+ import |import [\w.]+(?: as \w+)?[ \t]*$|\w+ = [^;\n]*[^;{\n]$)",
    re.MULTILINE,
)
_BRACED: Final = re.compile(r"[{;][ \t]*(?://.*)?$", re.MULTILINE)
_CONTINUES: Final = re.compile(
    r"(?:elif|else|except|finally|catch|case|default|then|fi|end|do|done|rescue|ensure|when|where)\b"
    r"|[)\]}{.?:,&|+*=<>%]|-[^-\w]|/[^/*]|\\"
)
_ATTACHED: Final = re.compile(r"[@#]|//|/\*|\*|template\b|export default$|async$|pub$")
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
_PRIVATE: Final = re.compile(r"^\s*(?:(?:static|async|get|set) )*#\w+\s*[=;(]", re.MULTILINE)
"""Private member of JavaScript, without whose declaration the other members have no meaning."""


class _Line(NamedTuple):
    start: int
    depth: int
    """Brackets open at its start."""
    is_inside: bool
    """True within a string or a comment of several lines."""


def code_group(text: str) -> SegmentNode:
    """Return program text as statements; imports at its beginning stay with every other statement."""
    is_indented = _is_indented(text)
    lines = _lines_of(text, _INDENTED_TOKEN if is_indented else _BRACED_TOKEN)
    nodes = _Splitter(text, lines, is_indented=is_indented).nodes(0, len(lines), 0)
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
    comment = "#" if is_indented else "//"
    return LineGroup(nodes[num_lead:], mark_line=f"{comment} {MARK}\n", opening=lead)


def _is_indented(text: str) -> bool:
    """Return whether blocks are marked by indentation, as in Python."""
    return len(_INDENTED.findall(text)) > len(_BRACED.findall(text))


def _lines_of(text: str, token: re.Pattern[str]) -> list[_Line]:
    """Return the lines with the brackets open at the start of each."""
    lines, depth = [_Line(0, 0, False)], 0
    for found in token.finditer(text):
        kind = found.lastgroup
        if kind == "newline":
            lines.append(_Line(found.end(), depth, False))
        elif kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
        else:
            begin = text.find("\n", found.start(), found.end())
            while begin >= 0:
                lines.append(_Line(begin + 1, depth, True))
                begin = text.find("\n", begin + 1, found.end())
    return lines if lines[-1].start < len(text) or len(lines) == 1 else lines[:-1]


class _Splitter:
    def __init__(self, text: str, lines: list[_Line], *, is_indented: bool) -> None:
        self._text = text
        self._lines = lines
        self._is_indented = is_indented

    def nodes(self, first: int, last: int, depth: int) -> list[SegmentNode]:
        """Return the statements of lines `first` to `last`, which begin at this depth of brackets."""
        starts = self._statements(first, last, depth)
        ends = [*starts[1:], last]
        return [self._statement(begin, end, depth) for begin, end in zip(starts, ends, strict=True) if begin < end]

    def _line(self, number: int) -> str:
        end = self._lines[number + 1].start if number + 1 < len(self._lines) else len(self._text)
        return self._text[self._lines[number].start : end]

    def _span(self, first: int, last: int) -> str:
        end = self._lines[last].start if last < len(self._lines) else len(self._text)
        return self._text[self._lines[first].start : end]

    def _statements(self, first: int, last: int, depth: int) -> list[int]:
        """Return the first line of each statement; decorators and comments belong to what follows them."""
        starts, base, is_bound = [first], None, True
        for number in range(first, last):
            line = self._lines[number]
            text = self._line(number)
            stripped = text.strip()
            if not stripped:
                is_bound = is_bound and not self._is_comment(self._line(number - 1) if number > first else "")
                continue
            if line.is_inside or line.depth != depth:
                is_bound = False
                continue
            indent = len(text) - len(text.lstrip())
            if base is None:
                base = indent
            if indent <= base and _CONTINUES.match(stripped):
                if len(starts) > 1 and self._head(starts[-1], number, depth) is None:
                    starts.pop()  # comments before an `else` belong to its `if`
            elif indent <= base and not is_bound:
                starts.append(number)
            # A decorator or a comment takes the next statement with it, an unfinished line its rest.
            if indent <= base:
                is_bound = bool(_ATTACHED.match(stripped)) or bool(_UNFINISHED.search(stripped))
            elif not self._is_indented:
                is_bound = False
        return starts

    def _is_comment(self, line: str) -> bool:
        return line.lstrip().startswith(("#", "//", "/*", "*"))

    def _statement(self, first: int, last: int, depth: int) -> SegmentNode:
        text = self._span(first, last)
        if len(text) < DIVIDED_BYTES:
            return TextSegment(text)
        head = self._head(first, last, depth)
        if head is None or not _CLASS.match(self._line(head).lstrip()) or _PRIVATE.search(text):
            return TextSegment(text)
        return self._members(first, head, last, depth) or TextSegment(text)

    def _head(self, first: int, last: int, depth: int) -> int | None:
        """Return the statement's first line behind comments and decorators."""
        for number in range(first, last):
            line, stripped = self._lines[number], self._line(number).strip()
            if stripped and line.depth == depth and not line.is_inside and not _ATTACHED.match(stripped):
                return number
        return None

    def _members(self, first: int, head: int, last: int, depth: int) -> SegmentNode | None:
        """Return a class as its members between its signature and its end; None where it has another shape."""
        outer = self._indent(head)
        inner = depth if self._is_indented else depth + 1
        body = next(
            (
                number
                for number in range(head + 1, last)
                if self._lines[number].depth == inner
                and not self._lines[number].is_inside
                and self._indent(number) > outer
                and self._line(number).strip()
            ),
            None,
        )
        if body is None:
            return None
        end = last
        if not self._is_indented:
            end = next((n for n in range(body, last) if self._is_end(n, inner)), last)
            if end == last:
                return None
        children = self.nodes(body, end, inner)
        if len(children) < 2:
            return None
        indent = self._line(body)[: self._indent(body)]
        mark_line = f"{indent}{'#' if self._is_indented else '//'} {MARK}\n"
        return LineGroup(
            children,
            mark_line=mark_line,
            opening=self._span(first, body),
            closing=self._span(end, last) if end < last else "",
        )

    def _is_end(self, number: int, inner: int) -> bool:
        """Return whether the line closes the bracket around the members, as its first character."""
        return self._lines[number].depth == inner and self._line(number).lstrip().startswith("}")

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
