"""Last resort: parts that are too large for what may stay are cut at lines, sentences or, without any, characters."""

from __future__ import annotations

from typing import Final

from gateway.trimming.structure.json_value import (
    JsonGroup,
    StringGroup,
    json_group,
    spelt_pieces,
    string_of_value,
)
from gateway.trimming.structure.rows import HunkGroup
from gateway.trimming.structure.segment import MARK, LineGroup, SegmentGroup, SegmentNode, TextSegment
from gateway.trimming.structure.sentences import sentences_of

MIN_BYTES: Final = 600
"""Size up to which no part is cut by force, however small the room is."""
_FRAME_CHARS: Final = 240
"""Length up to which the first line of such a part stays with any other, and the last one that closes it."""
_CLOSING: Final = ")]}>\"'`"
_JSON_ROW_MARK: Final = '["'
_COMMENTS: Final = ("#", "//", "--", "/*")


def cut_large_parts(layout: SegmentGroup, room_bytes: int) -> None:
    """Divide what would not fit a room beside other parts, whatever its structure is.

    A JSON value becomes a string with pieces of its text. Sizes follow a coarse grid, so texts are divided alike in a
    conversation whose room changes little.

    Args:
        layout: A text as a tree.
        room_bytes: Bytes that may stay of all texts together.
    """
    most_bytes = max(MIN_BYTES, 1 << max(0, room_bytes.bit_length() - 2) if room_bytes > 0 else 0)
    pending: list[tuple[SegmentGroup, int]] = [(layout, 0)]
    while pending:
        group, frame_bytes = pending.pop()
        children, is_changed = list[SegmentNode](), False
        for child in group.children:
            around_bytes = frame_bytes + child.num_frame_bytes if isinstance(child, SegmentGroup) else child.num_bytes
            if around_bytes <= most_bytes:
                children.append(child)
                if isinstance(child, SegmentGroup):
                    pending.append((child, around_bytes))
                continue
            is_changed = True
            for piece in _pieces(child, group):
                children.append(piece)
                if isinstance(piece, JsonGroup):
                    pending.append((piece, frame_bytes + piece.num_frame_bytes))
        if is_changed:
            group.adopt(children)


def _pieces(node: SegmentNode, group: SegmentGroup) -> list[SegmentNode]:
    """Return a part of a group in pieces that may stand in it."""
    text = _whole(node)
    if isinstance(group, StringGroup):
        return [TextSegment(piece) for piece in spelt_pieces(text)]
    if isinstance(group, JsonGroup) or isinstance(node, JsonGroup):
        return [string_of_value(text, is_member=isinstance(group, JsonGroup) and group.kind == "object")]
    if isinstance(group, HunkGroup):
        return [_lines(text, f"\\ {MARK}\n", is_closed=False)]
    if not isinstance(group, LineGroup):
        return _sentences(text)
    if group.mark_line.startswith(_JSON_ROW_MARK) and (row := json_group(text.rstrip())) is not None:
        row.extend_closing(text[len(text.rstrip()) :])
        return [row]
    return [_lines(text, group.mark_line, is_closed=True)]


def _whole(node: SegmentNode) -> str:
    if isinstance(node, SegmentGroup):
        node.parent = None
        for segment in node.segments():
            segment.retain()
    return node.rendered()


def _lines(text: str, mark_line: str, *, is_closed: bool) -> SegmentNode:
    """Return lines below the first one, which opens them, and above a last one of closing marks."""
    lines = text.splitlines(keepends=True)
    if len(lines) < 2:
        return SegmentGroup(_sentences(text))
    first = 1 if len(lines[0]) <= _FRAME_CHARS else 0
    is_end = is_closed and len(lines) > 2 and len(lines[-1]) <= _FRAME_CHARS and lines[-1].lstrip()[:1] in (*_CLOSING,)
    last = len(lines) - 1 if is_end else len(lines)
    if mark_line.startswith(_COMMENTS):
        body = lines[min(first, last - 1)]
        mark_line = body[: len(body) - len(body.lstrip())] + mark_line
    nodes: list[SegmentNode] = []
    for line in lines[first:last]:
        nodes.append(SegmentGroup(_sentences(line)) if len(line) > MIN_BYTES else TextSegment(line))
    return LineGroup(nodes, mark_line=mark_line, opening="".join(lines[:first]), closing="".join(lines[last:]))


def _sentences(text: str) -> list[SegmentNode]:
    return [TextSegment(sentence) for sentence in sentences_of(text)]
