"""Split of line formats: tables, JSON lines and diffs."""

from __future__ import annotations

import re
from typing import Final

from gateway.trimming.structure.json_value import json_group
from gateway.trimming.structure.segment import MARK, LineGroup, SegmentGroup, SegmentNode, TextSegment, num_bytes_of

_RULE: Final = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*$")
_HUNK: Final = re.compile(r"@@ .*? @@")
_FILE: Final = re.compile(r"diff --git |Index: |--- (?=.*\n\+\+\+ )", re.MULTILINE)


def table_group(text: str) -> SegmentNode:
    """Return the rows of a table; its first row, and the rule below, stay with every other row."""
    rows = text.splitlines(keepends=True)
    num_head = 2 if len(rows) > 1 and _RULE.match(rows[1]) else 1
    bar = rows[0].lstrip().startswith("|")
    mark_line = f"| {MARK} |\n" if bar else f"{MARK}\n"
    opening = "".join(rows[:num_head])
    return LineGroup([TextSegment(row) for row in rows[num_head:]], mark_line=mark_line, opening=opening)


def json_lines_group(text: str) -> SegmentNode:
    """Return the lines of JSON lines; a list of one string marks a gap, and is valid JSON too."""
    rows = [TextSegment(row) for row in text.splitlines(keepends=True)]
    return LineGroup(rows, mark_line=f'["{MARK}"]\n', divide=_json_row)


def _json_row(text: str) -> list[SegmentNode]:
    """Return one line of JSON lines by its members."""
    row = text.rstrip()
    group = json_group(row)
    if group is None:
        return [TextSegment(text)]
    group.extend_closing(text[len(row) :])
    return [group]


def diff_group(text: str) -> SegmentNode:
    """Return the hunks of a diff below the header of their file; what stays is a diff of what it shows."""
    starts = [found.start() for found in _FILE.finditer(text)]
    files = _joined_headers(text, starts)
    nodes: list[SegmentNode] = []
    for begin, end in zip([0, *files], [*files, len(text)], strict=True):
        if begin < end:
            nodes.append(_file_group(text[begin:end]))
    return LineGroup(nodes, mark_line=f"{MARK}\n")


def _joined_headers(text: str, starts: list[int]) -> list[int]:
    """Return where files begin: a `---` line that follows a `diff` line within the header begins none."""
    files: list[int] = []
    for start in starts:
        is_second = bool(files) and "\n@@ " not in text[files[-1] : start] and text.startswith("--- ", start)
        if not is_second and start > 0:
            files.append(start)
        elif start == 0:
            files.append(0)
    return [start for start in files if start > 0]


def _file_group(text: str) -> SegmentNode:
    pieces, header, hunk = [], [], list[str]()
    for line in text.splitlines(keepends=True):
        if _HUNK.match(line):
            if hunk:
                pieces.append("".join(hunk))
            hunk = [line]
        elif hunk:
            hunk.append(line)
        else:
            header.append(line)
    if not hunk:
        return TextSegment(text)
    pieces.append("".join(hunk))
    return HunkGroup([TextSegment(piece) for piece in pieces], "".join(header))


class HunkGroup(SegmentGroup):
    """Hunks of one file of a diff; a gap before a hunk is marked behind its line numbers, where text is free."""

    __slots__ = ()

    def gap_change(self, child: SegmentNode) -> int:
        """Return the bytes by which marks grow; only a hunk behind a gap carries one."""
        children, place = self.children, child.place
        is_behind_gap = place > 0 and not children[place - 1].is_retained
        closes = place + 1 < len(children) and children[place + 1].is_retained
        return self.mark_bytes(child) * (is_behind_gap - closes)

    def mark_bytes(self, last: SegmentNode) -> int:
        """Return the bytes of a mark, with the space before it."""
        return num_bytes_of(f" {MARK}")

    def rendered(self) -> str:
        """Return the file's header and its retained hunks."""
        pieces, is_gap = [self.opening], False
        for child in self.children:
            if not child.is_retained:
                is_gap = True
                continue
            text = child.rendered()
            pieces.append(_HUNK.sub(lambda found: f"{found.group()} {MARK}", text, count=1) if is_gap else text)
            is_gap = False
        return "".join(pieces)
