"""Pinning of what no selection drops: the paragraphs around a long text, and questions and instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.trimming.relevance.instructions import (
    instructs,
    instructs_within,
    is_open_question,
    is_question,
    is_task,
    requests_beside_code,
    requests_within,
)
from gateway.trimming.structure.markup import MarkupGroup
from gateway.trimming.structure.rows import HunkGroup
from gateway.trimming.structure.segment import LineGroup, SegmentGroup, SegmentNode, TextSegment
from gateway.trimming.structure.sentences import sentences_of, speaker_of

MAX_PARAGRAPH_BYTES: Final = 600
"""Size up to which the first and the last paragraph of earlier texts stay whole; a line or sentence of longer ones."""
MAX_SHARE: Final = 0.25
"""Share of the room that a paragraph of the last user message, and orders on lines of their own, may take."""
_WITHIN_SHARE: Final = 0.08
"""Share of the room that sentences within paragraphs, and rows, may take because they are questions or instructions."""
SURE_BYTES: Final = 1200
"""Size up to which sentences of the last user message that request something of a model stay, whatever the room."""
FEW_BYTES: Final = 600
"""Size up to which other questions and instructions of a kind stay, whatever the room; more are a text's subject."""
_MIN_SPOKEN_LINES: Final = 4
"""Lines with the label of a speaker from which a text is a transcript."""
_MARKS_OF_ROWS: Final = ("[", "|", ">", "<")

_MAX_WITHIN: Final = 3
"""Number of questions within a text up to which they are the question; a text with more has them as its subject."""
_ENDS_PARAGRAPH: Final = re.compile(r"\n[^\S\n]*\n\s*\Z")
_QUOTED: Final = re.compile(r"""\s*+["'“„«»「『‘`](?![^"'”“»«」』’`]{1,60}(?<![,.!?])["'”“»«」』’`]\s*\w)""")
"""Beginning of a quotation; one of a few words, behind which the sentence goes on, is a part of it."""
_SENTENCE_END: Final = re.compile(r"""[.!?…。！？。؟।]["')\]”’»*_]*\s*\Z|\n[^\S\n]*\n\s*\Z""")
_WORD: Final = re.compile(r"\w")
_ITEM: Final = re.compile(r"[\s>]*(?:[-*+•#|]|\d{1,9}[.)]|[a-z]\))\s")
_MIN_LINE_CHARS: Final = 50
"""Length from which a line may be one that is broken at its end; the next line of a shorter one begins small."""
_SENTENCE_GAP: Final = re.compile(r"(?<=[.!?])\s+(?=\S)")
_TAG: Final = re.compile(r"</?[^\W\d][^<>]*>")
_BARE_CHARS: Final = 2000
_JSON_WORD: Final = re.compile(r"\bjson\b|\bschema\b", re.IGNORECASE)


def pin_ends(layout: SegmentGroup, max_bytes: int = MAX_PARAGRAPH_BYTES) -> list[list[TextSegment]]:
    """Retain the first and the last paragraph of a text, and return the segments of each.

    Short code, and a short table or document, at the beginning or the end is retained too.
    """
    for children in (layout.children, layout.children[::-1]):
        for segment in _short_structure(children, max_bytes):
            segment.retain()
    first = _first([*_leading_prose(layout.children)], max_bytes)
    last = _last([*_leading_prose(layout.children[::-1], is_reversed=True)][::-1], max_bytes)
    for segment in (*first, *last):
        segment.retain()
    return [first, last]


def pin_orders(layout: SegmentGroup, room_bytes: int) -> list[TextSegment]:
    """Retain questions and instructions within a text, and return the questions on lines of their own.

    What requests something of a model stays up to SURE_BYTES, and other kinds up to FEW_BYTES each, whatever the room;
    beyond, a share of the room bounds them, those on lines of their own first. Quotations, and what the speakers of a
    transcript say to each other, address nobody else.
    """
    orders = _Orders(layout)
    questions = [segment for segment in orders.alone if _is_question(segment)]
    left_bytes = _pin(orders.sure, max(room_bytes * MAX_SHARE / 2, SURE_BYTES))
    _pin([segment for order in orders.sure if order.is_retained for segment in _rest_of(order)], left_bytes)
    left_bytes = _pin(questions, _most(questions, room_bytes * MAX_SHARE / 2))
    _pin(orders.alone, _most(orders.alone, room_bytes * MAX_SHARE / 2 + left_bytes))
    for segments in (orders.within, orders.structured, orders.instructing):
        _pin(segments, _most(segments, room_bytes * _WITHIN_SHARE))
    return [segment for segment in questions if segment.is_retained]


class _Orders:
    """Questions and instructions of a text, by how sure that is and where they stand."""

    def __init__(self, layout: SegmentGroup) -> None:
        self.sure: list[TextSegment] = []
        """Sentences and headings that request something of a model."""
        self.alone: list[TextSegment] = []
        """Other questions and instructions on lines of their own."""
        self.within: list[TextSegment] = []
        self.structured: list[TextSegment] = []
        """Rows, entries, strings and code in which a sentence requests something of a model."""
        self.instructing: list[TextSegment] = []
        """Rows, entries and strings with other instructions in them."""
        self._is_transcript = sum(map(_is_line_of_speaker, layout.segments())) >= _MIN_SPOKEN_LINES
        heading: SegmentGroup | None = None
        begins_line = True
        for segment in layout.segments():
            is_alone = begins_line and segment.text.endswith("\n")
            begins_line = segment.text.endswith("\n")
            group = segment.parent
            if group is not heading and group is not None and _heads(group) and segment.place == 0:
                heading = group
                if instructs(group.opening.lstrip("# ")) or is_question(group.opening):
                    self.sure.append(segment)  # a heading stays with what stands below it
                    continue
            if not segment.is_retained:
                self._add(segment, is_alone=is_alone)

    def _add(self, segment: TextSegment, *, is_alone: bool) -> None:
        group, text = segment.parent, segment.text
        if type(group) is not SegmentGroup:
            self._add_structured(segment)
            return
        if _QUOTED.match(text) or (self._is_transcript and (_is_spoken(group) or _speaks(text))):
            return
        if _speaks(text):
            text = text[len(speaker_of(text)) :]
        sentences = _SENTENCE_GAP.split(text)  # a segment goes on behind what looks like an initial
        if any(map(is_task, sentences)):
            self.sure.append(segment)
        elif is_question(text) or any(map(instructs, sentences)):
            (self.alone if is_alone else self.within).append(segment)

    def _add_structured(self, segment: TextSegment) -> None:
        group = segment.parent
        if isinstance(group, HunkGroup):
            return
        if _is_code(group):
            if requests_beside_code(segment.text):
                self.structured.append(segment)
        elif requests_within(segment.text):
            self.structured.append(segment)
        elif instructs_within(segment.text):
            self.instructing.append(segment)


def _pin(segments: Sequence[TextSegment], most_bytes: float) -> float:
    """Retain segments while there is room, and return the bytes left."""
    for segment in segments:
        if not segment.is_retained and segment.num_bytes <= most_bytes:
            most_bytes -= segment.num_bytes
            segment.retain()
    return most_bytes


def _rest_of(segment: TextSegment) -> Iterator[TextSegment]:
    """Yield the segments that a sentence goes on with: behind broken lines, or where it is longer than a segment."""
    group = segment.parent
    if type(group) is not SegmentGroup:
        return
    before = segment.text
    for child in group.children[segment.place + 1 :]:
        if not isinstance(child, TextSegment):
            return
        if _SENTENCE_END.search(before[-40:]) and (before.endswith("\n") or _WORD.search(child.text) is not None):
            return  # marks alone belong to the line before them
        is_broken = len(before.rstrip()) >= _MIN_LINE_CHARS or child.text.lstrip("> \t")[:1].islower()
        if before.endswith("\n") and (not is_broken or _ITEM.match(child.text) is not None):
            return
        yield child
        before = child.text


def _most(segments: Sequence[TextSegment], share_bytes: float) -> float:
    """Return the room of a kind of orders: a few stay whatever the share."""
    size = sum(segment.num_bytes for segment in segments if not segment.is_retained)
    return max(share_bytes, size if size <= FEW_BYTES else 0)


def pin_json_words(layout: SegmentGroup) -> None:
    """Retain the sentences that speak of JSON or of a schema, which a `response_format` refers to."""
    for segment in layout.segments():
        if type(segment.parent) is SegmentGroup and _JSON_WORD.search(segment.text):
            segment.retain()


def without_orders(text: str) -> tuple[str, str]:
    """Return a short text without its orders where it has a question, and those orders."""
    sentences = [TextSegment(sentence) for sentence in sentences_of(text)]
    if not any(map(_is_question, sentences)):
        return text, ""
    return (
        _text([[sentence for sentence in sentences if not _only_orders(sentence)]]),
        _text([[sentence for sentence in sentences if _only_orders(sentence)]]),
    )


def question_text(paragraphs: Sequence[Sequence[TextSegment]], within: Sequence[TextSegment] = ()) -> tuple[str, str]:
    """Return the text of the question, and other orders beside it.

    Paragraphs of questions are the question; without any, a few questions within the text, paragraphs with
    instructions, the sentences that instruct, or all.

    Args:
        paragraphs: The first and the last paragraph.
        within: Questions on lines of their own between them.
    """
    has_question = any(2 * sum(map(_is_question, part)) >= len(part) for part in paragraphs if part)
    if not has_question and 0 < len(within) <= _MAX_WITHIN:
        return _text([within]), _text([[segment for segment in part if _orders(segment)] for part in paragraphs])
    for is_wanted in (_is_question, _orders):
        wanted = [part for part in paragraphs if part and 2 * sum(map(is_wanted, part)) >= len(part)]
        if wanted:
            questions = [[segment for segment in part if not _only_orders(segment)] for part in wanted]
            questions = questions if any(questions) else [[*part] for part in wanted]
            others = [segment for part in paragraphs for segment in part if _orders(segment)]
            chosen = {id(segment) for part in questions for segment in part}
            return _text(questions), _text([[segment for segment in others if id(segment) not in chosen]])
    sentences = _text([[segment for segment in part if _orders(segment)] for part in paragraphs])
    return sentences or _text(paragraphs), ""


def _text(paragraphs: Sequence[Sequence[TextSegment]]) -> str:
    return "".join(segment.text for part in paragraphs for segment in part)


def _is_question(segment: TextSegment) -> bool:
    text = _bare(segment)
    return is_question(text) or is_open_question(text)


def _only_orders(segment: TextSegment) -> bool:
    return not _is_question(segment) and instructs(_bare(segment))


def _orders(segment: TextSegment) -> bool:
    return _is_question(segment) or instructs(_bare(segment))


def _bare(segment: TextSegment) -> str:
    """Return the text of a segment without the tags around it."""
    text = segment.text
    return _TAG.sub("", text) if isinstance(segment.parent, MarkupGroup) and len(text) < _BARE_CHARS else text


def _heads(group: SegmentGroup) -> bool:
    return group.opening.startswith("#") and type(group) is SegmentGroup


def _is_code(group: SegmentGroup | None) -> bool:
    """Return whether the group marks gaps by comments, as code and settings do."""
    return type(group) is LineGroup and not group.mark_line.lstrip().startswith(_MARKS_OF_ROWS)


def _is_spoken(group: SegmentGroup) -> bool:
    """Return whether the group is a line of a transcript."""
    return bool(group.opening) and _speaks(group.opening + "…")


def _is_line_of_speaker(segment: TextSegment) -> bool:
    group = segment.parent
    return type(group) is SegmentGroup and ((segment.place == 0 and _is_spoken(group)) or _speaks(segment.text))


def _speaks(text: str) -> bool:
    label = speaker_of(text)
    return bool(label) and not instructs(label)


def _leading_prose(children: Sequence[object], *, is_reversed: bool = False) -> Iterator[TextSegment]:
    """Yield the segments of prose up to the first table, fence, document or code."""
    for child in children:
        if isinstance(child, TextSegment):
            yield child
        elif isinstance(child, MarkupGroup) or (type(child) is SegmentGroup and not child.closing):
            segments = [*child.segments()]
            yield from segments[::-1] if is_reversed else segments
        else:
            return


def _short_structure(children: Sequence[SegmentNode], max_bytes: int) -> list[TextSegment]:
    """Return the segments of what stands first, where that is no prose and short; none otherwise."""
    node = next((child for child in children if isinstance(child, SegmentGroup) or child.text.strip()), None)
    if not isinstance(node, SegmentGroup) or (type(node) is SegmentGroup and not node.closing):
        return []
    if isinstance(node, MarkupGroup):
        return []
    segments, size = list[TextSegment](), node.num_frame_bytes
    for segment in node.segments():
        segments.append(segment)
        size += segment.num_bytes
        if size > max_bytes:
            return []
    return segments


def _first(segments: Sequence[TextSegment], max_bytes: int) -> list[TextSegment]:
    for is_end in (_ends_paragraph, _ends_line, _is_any):
        taken, size = list[TextSegment](), 0
        for segment in segments:
            taken.append(segment)
            size += segment.num_bytes
            if size > max_bytes or is_end(segment.text):
                break
        if taken and size <= max_bytes:
            return taken
    return []


def _last(segments: Sequence[TextSegment], max_bytes: int) -> list[TextSegment]:
    for is_end in (_ends_paragraph, _ends_line, _is_any):
        taken, size = list[TextSegment](), 0
        for segment in reversed(segments):
            if taken and is_end(segment.text):
                break
            taken.append(segment)
            size += segment.num_bytes
            if size > max_bytes:
                break
        if taken and size <= max_bytes:
            return taken[::-1]
    return []


def _ends_paragraph(text: str) -> bool:
    return _ENDS_PARAGRAPH.search(text[-16:]) is not None


def _ends_line(text: str) -> bool:
    return text.endswith("\n")


def _is_any(text: str) -> bool:
    return True
