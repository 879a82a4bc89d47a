"""Last resort: parts that are too large for what may stay are cut at lines, sentences or, without any, characters."""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.trimming.structure.json_value import JsonGroup, StringGroup, spelt_pieces, string_of_value
from gateway.trimming.structure.rows import HunkGroup
from gateway.trimming.structure.segment import MARK, LineGroup, SegmentGroup, SegmentNode, TextSegment
from gateway.trimming.structure.sentences import sentences_of

MIN_BYTES: Final = 600
"""Size up to which no part is divided further, however small the room is."""
MAX_DIVIDED: Final = 1
"""Number of times that one stretch of a text is divided further at its structure; code that is cut off never is."""
_WHOLE_SHARE: Final = 0.25
"""Share of a text up to which a part goes whole rather than lose its syntax, although it exceeds the room."""
_FRAME_CHARS: Final = 240
"""Length up to which the first line of a part stays with any other, and the last one that closes it."""
_CLOSING: Final = (")", "]", "}", ">", '"', "'", "`")
_COMMENTS: Final = ("#", "//", "--", "/*")


def cut_large_parts(layout: SegmentGroup, room_bytes: int) -> None:
    """Divide what would not fit a room beside other parts, whatever its structure is.

    Code is divided further at its own structure first. A statement stays whole that fits the room or is a small share
    of the text, unless the code is cut off. A JSON value becomes a string with pieces of its text. Sizes follow a
    coarse grid, so texts are divided alike in a conversation whose room changes little.

    Args:
        layout: A text as a tree.
        room_bytes: Bytes that may stay of all texts together.
    """
    cutter = _Cutter(room_bytes, sum(segment.num_bytes for segment in layout.segments()))
    pending = [_Part(layout, 0, False, 0)]
    while pending:
        part = pending.pop()
        children = list[SegmentNode]()
        for child in part.group.children:
            pieces, is_divided = cutter.pieces(child, part)
            children += pieces
            groups = (piece for piece in pieces if isinstance(piece, SegmentGroup))
            pending += [part.of(group, is_divided=is_divided) for group in groups]
        if children != [*part.group.children]:
            part.group.adopt(children)


class _Part(NamedTuple):
    """A group whose children are still to be looked at."""

    group: SegmentGroup
    frame_bytes: int
    """Bytes that open and close it and the groups around it."""
    is_cut_off: bool
    num_divided: int

    def of(self, group: SegmentGroup, *, is_divided: bool) -> _Part:
        """Return the part of a child."""
        is_cut_off = self.is_cut_off or (isinstance(group, LineGroup) and group.is_cut_off)
        return _Part(group, self.frame_bytes + _frame_bytes(group), is_cut_off, self.num_divided + is_divided)


class _Cutter:
    def __init__(self, room_bytes: int, text_bytes: int) -> None:
        power = 1 << max(0, room_bytes.bit_length() - 2) if room_bytes > 0 else 0
        self._most_bytes = max(MIN_BYTES, power)
        """Size up to which every part stays as it is."""
        coarse_bytes = room_bytes - room_bytes % max(1, power // 4)
        self._whole_bytes = max(MIN_BYTES, coarse_bytes, int(text_bytes * _WHOLE_SHARE))
        """Size up to which a part stays that would lose its syntax."""

    def pieces(self, child: SegmentNode, part: _Part) -> tuple[list[SegmentNode], bool]:
        """Return the nodes that take the place of a child, and whether it was divided at its own structure."""
        group = part.group
        if isinstance(child, SegmentGroup):
            most_bytes = self._most_bytes if isinstance(child, JsonGroup) else self._whole_bytes
            fits = part.frame_bytes + _frame_bytes(child) <= most_bytes
            return ([child] if fits else _forced(child, group)), False
        if child.num_bytes <= self._most_bytes:
            return [child], False
        can_divide = part.num_divided < MAX_DIVIDED and not part.is_cut_off
        if can_divide and isinstance(group, LineGroup) and group.divide is not None:
            nodes = [*group.divide(child.text)]
            if len(nodes) > 1 or not isinstance(nodes[0], TextSegment):
                return [piece for node in nodes for piece in self._fitted(node, part)], True
        return self._fitted(child, part), False

    def _fitted(self, node: SegmentNode, part: _Part) -> list[SegmentNode]:
        """Return a part whole, or in pieces where it is too large."""
        has_syntax = not (part.is_cut_off or isinstance(part.group, JsonGroup | StringGroup | HunkGroup))
        most_bytes = self._whole_bytes if has_syntax else self._most_bytes
        is_large = isinstance(node, TextSegment) and node.num_bytes > most_bytes
        return _forced(node, part.group) if is_large else [node]


def _frame_bytes(group: SegmentGroup) -> int:
    """Return the bytes that open and close a group, with the mark of a gap."""
    return group.num_frame_bytes + (group.mark_bytes(group.children[-1]) if len(group.children) > 1 else 0)


def _forced(node: SegmentNode, group: SegmentGroup) -> list[SegmentNode]:
    """Return a part of a group in pieces that may stand in it, without regard for its syntax."""
    text = _whole(node)
    if isinstance(group, StringGroup):
        return [TextSegment(piece) for piece in spelt_pieces(text)]
    if isinstance(group, JsonGroup) or isinstance(node, JsonGroup):
        return [string_of_value(text, is_member=isinstance(group, JsonGroup) and group.kind == "object")]
    if isinstance(group, HunkGroup):
        return [_lines(text, f"\\ {MARK}\n")]
    return [_lines(text, group.mark_line)] if isinstance(group, LineGroup) else _sentences(text)


def _whole(node: SegmentNode) -> str:
    if isinstance(node, SegmentGroup):
        node.parent = None
        for segment in node.segments():
            segment.retain()
    return node.rendered()


def _lines(text: str, mark_line: str) -> SegmentNode:
    """Return lines below the first one, which opens them, and above a last one of closing marks."""
    lines = text.splitlines(keepends=True)
    if len(lines) < 2:
        return SegmentGroup(_sentences(text))
    first = 1 if len(lines[0]) <= _FRAME_CHARS else 0
    last = len(lines)
    while last > first + 1 and lines[last - 1].isspace():
        last -= 1
    is_end = last > first + 1 and len(lines[last - 1]) <= _FRAME_CHARS and lines[last - 1].strip().endswith(_CLOSING)
    last = last - 1 if is_end else len(lines)
    if mark_line.startswith(_COMMENTS):
        body = lines[min(first, last - 1)]
        mark_line = body[: len(body) - len(body.lstrip())] + mark_line
    nodes = [
        SegmentGroup(_sentences(line)) if len(line) > MIN_BYTES else TextSegment(line) for line in lines[first:last]
    ]
    return LineGroup(nodes, mark_line=mark_line, opening="".join(lines[:first]), closing="".join(lines[last:]))


def _sentences(text: str) -> list[SegmentNode]:
    return [TextSegment(sentence) for sentence in sentences_of(text)]
