"""Split of settings: YAML by its indentation, and files with sections in square brackets, such as TOML and INI."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gateway.trimming.structure.segment import MARK, LineGroup, SegmentNode, TextSegment, num_bytes_of

WHOLE_BYTES: Final = 240
"""Size up to which an entry is not divided."""
MAX_DEPTH: Final = 12
"""Depth to which entries are divided; what is nested deeper goes whole."""

_SECTION: Final = re.compile(r"\[{1,2}[\w.\"' :/-]+\]{1,2}\s*(?:[#;].*)?$")
_YAML_KEY: Final = re.compile(r"""\s*(?:- )*(?:[\w$@*+./-]+|"[^"\n]+"|'[^'\n]+')\s*:(?:\s|$)|\s*- """)
_YAML_BLOCK: Final = re.compile(r":\s+[|>][-+\d]*\s*$")
_YAML_ANCHOR: Final = re.compile(r"(?:^|[\s:-])[&*][\w-]+\s*$|<<:", re.MULTILINE)
_MARK_LINE: Final = f"# {MARK}\n"


def is_section(line: str) -> bool:
    """Return whether the line names a section, such as `[server]`."""
    return _SECTION.match(line) is not None


def open_quote(line: str) -> str:
    """Return the mark of a string over several lines that the line opens; empty where it opens none."""
    return next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")


class YamlRuns:
    """YAML among lines; each line is read once, at whatever line the YAML begins."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._stop = 0
        """Number of the line behind what was read."""
        self._ends: dict[int, int] = {}
        """End of the YAML that begins at each line of what was read last."""

    def end_at(self, start: int) -> int:
        """Return the end of the YAML that begins at a line: keys with values below them; the start without any.

        Args:
            start: Number of a line, never a smaller one than before.
        """
        if start >= self._stop:
            if self._lines[start][0].isspace() or not _YAML_KEY.match(self._lines[start]):
                return start
            self._read(start)
        return self._ends.get(start, start)

    def _read(self, start: int) -> None:
        """Read on to a line that is no YAML; whatever flush key it is read from, it ends there."""
        end, num_nested, num_flush, block, key_indent = start, 0, 0, -1, 0
        starts: list[tuple[int, int, int]] = []
        self._stop = len(self._lines)
        for number in range(start, len(self._lines)):
            line = self._lines[number]
            if line.isspace():
                continue
            indent = _indent(line)
            if 0 <= block < indent:
                end = number + 1
                continue
            block = -1
            is_key = _YAML_KEY.match(line) is not None
            if not (is_key or indent > key_indent or line.lstrip().startswith(("#", "---"))):
                self._stop = number
                break
            if is_key and not line[0].isspace():
                starts.append((number, num_nested, num_flush))
            key_indent = indent if is_key else key_indent
            if _YAML_BLOCK.search(line):
                block = indent
            num_nested += is_key and indent > 0
            num_flush += indent == 0
            end = number + 1
        self._ends = {
            number: end
            for number, nested, flush in starts
            if num_nested - nested >= max(_MIN_NESTED, num_flush - flush)
        }


_MIN_NESTED: Final = 4
"""Nested lines from which text without a fence counts as YAML; flat ones may be a transcript."""


def yaml_group(text: str) -> SegmentNode:
    """Return YAML as entries; an entry stays with the keys above it. One with anchors goes whole."""
    lines = text.splitlines(keepends=True)
    if _YAML_ANCHOR.search(text):
        return TextSegment(text)
    nodes = _entries(lines, 0)
    return LineGroup(nodes, mark_line=_MARK_LINE) if len(nodes) > 1 else nodes[0]


def _entries(lines: Sequence[str], depth: int) -> list[SegmentNode]:
    """Return the entries that these lines hold side by side, comments with the entry behind them."""
    indents = [_indent(line) for line in lines if _is_content(line)]
    if not indents:
        return [TextSegment("".join(lines))]
    base, starts, is_bound = indents[0], [0], True
    is_list = next(line for line in lines if _is_content(line)).lstrip().startswith("- ")
    for number, line in enumerate(lines):
        if line.isspace():
            continue
        if not _is_content(line):
            if _indent(line) <= base and not is_bound:
                starts.append(number)
                is_bound = True
            continue
        begins = _indent(line) <= base and line.lstrip()[0] not in "]})" and (is_list or line.lstrip()[:2] != "- ")
        if begins and not is_bound:
            starts.append(number)
        is_bound = False if _indent(line) <= base else is_bound
    spans = zip(starts, [*starts[1:], len(lines)], strict=True)
    return [_entry(lines[begin:end], depth) for begin, end in spans]


def _entry(lines: Sequence[str], depth: int) -> SegmentNode:
    text = "".join(lines)
    head = next((number for number, line in enumerate(lines) if _is_content(line)), len(lines)) + 1
    if num_bytes_of(text) <= WHOLE_BYTES or depth >= MAX_DEPTH or len(lines) <= head:
        return TextSegment(text)
    key = lines[head - 1]
    if key.lstrip().startswith("- ") or not key.rstrip().endswith(":"):
        return TextSegment(text)  # a list's element, a block of text or a value over several lines
    children = _entries(lines[head:], depth + 1)
    if len(children) < 2 and isinstance(children[0], TextSegment):
        return TextSegment(text)
    indent = next((line[: _indent(line)] for line in lines[head:] if _is_content(line)), "")
    return LineGroup(children, mark_line=indent + _MARK_LINE, opening="".join(lines[:head]))


def sections_group(text: str) -> SegmentNode:
    """Return the entries of each section below its name; an entry may continue on indented lines."""
    nodes: list[SegmentNode] = []
    name, entries, entry = "", list[SegmentNode](), ""

    def end_section() -> None:
        nonlocal entries
        if name:
            nodes.append(LineGroup(entries, mark_line=_MARK_LINE, opening=name) if entries else TextSegment(name))
        else:
            nodes.extend(entries)
        entries = []

    quote, depth = "", 0
    for line in text.splitlines(keepends=True):
        is_open = bool(quote) or depth > 0
        if entry and not (is_open or line[0].isspace() or line[0] in "]}"):
            entries.append(TextSegment(entry))
            entry = ""
        if not is_open and is_section(line):
            end_section()
            name = line
            continue
        entry += line
        if quote:
            quote = "" if quote in line else quote
        else:
            quote = open_quote(line)
            depth = depth if quote else max(0, depth + line.count("[") - line.count("]"))
    if entry:
        entries.append(TextSegment(entry))
    end_section()
    return LineGroup(nodes, mark_line=_MARK_LINE) if len(nodes) > 1 else nodes[0]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")
