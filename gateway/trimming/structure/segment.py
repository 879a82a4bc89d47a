"""TextSegment and SegmentGroup: a text as a tree of parts that stay or go whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

MARK: Final = "[…]"
"""Mark of a gap in formats with a syntax, within a comment, a row or a string."""
GAP: Final = "..."
"""Mark of a gap in prose, in every language: small models read on behind it as behind any sentence."""
_CONTEXT_CHARS: Final = 240
"""Characters of an opening that count as context; a head of any length is read for each of its rows."""
_MAX_CONTEXTS: Final = 12
"""Number of groups around a segment whose openings count, the inner ones first."""


def num_bytes_of(text: str) -> int:
    """Return the length of a text in bytes of UTF-8; half a surrogate pair counts three."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


class TextSegment:
    """Part of a text that stays or goes whole, with the space behind it."""

    __slots__ = ("is_retained", "num_bytes", "parent", "place", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.num_bytes = num_bytes_of(text)
        self.is_retained = False
        self.parent: SegmentGroup | None = None
        self.place = 0
        """Index among the children of the parent."""

    @property
    def context(self) -> str:
        """Text that opens the groups around the segment: headings, speakers, names of members, signatures."""
        found, group = list[str](), self.parent
        while group is not None and len(found) < _MAX_CONTEXTS:
            found.append(group.opening[:_CONTEXT_CHARS])
            group = group.parent
        return " ".join(found)

    @property
    def cost_bytes(self) -> int:
        """Bytes that the text grows by when this segment is retained; groups that open and marks included."""
        cost, node, group = self.num_bytes, self, self.parent
        child: SegmentNode = node
        while group is not None:
            cost += group.gap_change(child)
            if group.is_retained:
                break
            cost += group.num_frame_bytes
            child, group = group, group.parent
        return cost

    def retain(self) -> None:
        """Retain the segment and the groups around it."""
        self.is_retained = True
        group = self.parent
        while group is not None and not group.is_retained:
            group.is_retained = True
            group = group.parent

    def rendered(self) -> str:
        """Return the text."""
        return self.text


class SegmentGroup:
    """Segments under one opening and closing, such as a fence, a class or a section; it stays while any of them does.

    Gaps in prose are marked by GAP, with the space that ended the gap.
    """

    __slots__ = ("children", "closing", "is_retained", "num_frame_bytes", "opening", "parent", "place")

    def __init__(self, children: Sequence[SegmentNode], opening: str = "", closing: str = "") -> None:
        self.opening = opening
        self.closing = closing
        self.num_frame_bytes = num_bytes_of(opening) + num_bytes_of(closing)
        self.is_retained = False
        self.parent: SegmentGroup | None = None
        self.place = 0
        self.adopt(children)

    def adopt(self, children: Sequence[SegmentNode]) -> None:
        """Take these children in place of the present ones."""
        self.children = children
        for place, child in enumerate(children):
            child.parent, child.place = self, place

    def mark_bytes(self, last: SegmentNode) -> int:
        """Return the bytes of the mark of a gap that ends with a child."""
        return len(GAP) + num_bytes_of(_space_behind(last) or " ")

    def gap_change(self, child: SegmentNode) -> int:
        """Return the bytes by which marks grow when the dropped child is retained; negative where a gap closes."""
        children, place = self.children, child.place
        change = 0
        if place > 0 and not children[place - 1].is_retained:
            change += self.mark_bytes(children[place - 1])
        is_last = place + 1 == len(children)
        if not self.is_retained:  # a group that is about to open had no gap of its own before
            return change if is_last else change + self.mark_bytes(children[-1])
        is_end = is_last or children[place + 1].is_retained
        return change - self.mark_bytes(child) if is_end else change

    def mark(self, dropped: Sequence[SegmentNode]) -> str:
        """Return the mark of a gap."""
        return GAP + (_space_behind(dropped[-1]) or " ")

    def rendered(self) -> str:
        """Return the retained segments in order, with gaps marked."""
        pieces, dropped = [self.opening], list[SegmentNode]()
        for child in self.children:
            if not child.is_retained:
                dropped.append(child)
                continue
            if dropped:
                pieces.append(self.mark(dropped))
                dropped = []
            pieces.append(child.rendered())
        if dropped:
            pieces.append(self.mark(dropped))
        return "".join([*pieces, self.closing])

    def extend_closing(self, text: str) -> None:
        """Add a text behind the closing."""
        self.closing += text
        self.num_frame_bytes += num_bytes_of(text)

    def segments(self) -> Iterator[TextSegment]:
        """Yield the segments below this group, in the order of the text."""
        pending: list[SegmentNode] = [*reversed(self.children)]
        while pending:
            node = pending.pop()
            if isinstance(node, SegmentGroup):
                pending += reversed(node.children)
            else:
                yield node


SegmentNode: TypeAlias = TextSegment | SegmentGroup


def _space_behind(node: SegmentNode) -> str:
    """Return the space at the end of a segment, or of the last one in a group."""
    while isinstance(node, SegmentGroup) and node.children and not node.closing:
        node = node.children[-1]
    text = node.closing if isinstance(node, SegmentGroup) else node.text
    return text[len(text.rstrip()) :]


class LineGroup(SegmentGroup):
    """Lines of a format with a syntax, such as code or a table; a gap is marked by a line that the syntax allows."""

    __slots__ = ("divide", "is_cut_off", "mark_line")

    def __init__(
        self,
        children: Sequence[SegmentNode],
        *,
        mark_line: str,
        opening: str = "",
        closing: str = "",
        divide: Callable[[str], Sequence[SegmentNode]] | None = None,
    ) -> None:
        """Create a group.

        Args:
            children: The lines.
            mark_line: Line that marks a gap; empty where no line may be added.
            opening: What stands before them.
            closing: What stands behind them.
            divide: Divides the text of a child further than usual, at its own structure; None where nothing does.
        """
        super().__init__(children, opening, closing)
        self.mark_line = mark_line
        self.divide = divide
        self.is_cut_off = False
        """True for code with a bracket that has no end, whose syntax no cut can harm."""

    def mark_bytes(self, last: SegmentNode) -> int:
        """Return the bytes of the mark of a gap."""
        return num_bytes_of(self.mark_line)

    def mark(self, dropped: Sequence[SegmentNode]) -> str:
        """Return the line that marks a gap."""
        return self.mark_line


def all_retained(nodes: Sequence[SegmentNode]) -> bool:
    """Return whether nothing below these nodes is dropped."""
    return all(
        node.is_retained and (not isinstance(node, SegmentGroup) or all_retained(node.children)) for node in nodes
    )
