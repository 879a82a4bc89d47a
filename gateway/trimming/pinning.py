"""Pinning of what no selection drops: the paragraphs around a long text, and questions and instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.trimming.relevance.instructions import instructs, is_open_question, is_question
from gateway.trimming.structure.segment import SegmentGroup, SegmentNode, TextSegment
from gateway.trimming.structure.sentences import sentences_of, speaker_of

MAX_PARAGRAPH_BYTES: Final = 600
"""Size up to which the first and the last paragraph of earlier texts stay whole; a line or sentence of longer ones."""
MAX_SHARE: Final = 0.25
"""Share of the room that a paragraph of the last user message, and orders on lines of their own, may take."""
_WITHIN_SHARE: Final = 0.08
"""Share of the room that sentences within paragraphs may take because they are questions or instructions."""

_MAX_WITHIN: Final = 3
"""Number of questions within a text up to which they are the question; a text with more has them as its subject."""
_ENDS_PARAGRAPH: Final = re.compile(r"\n[^\S\n]*\n\s*\Z")
_QUOTED: Final = re.compile(r"""\s*+(?:>|["'“„«»「『‘`])""")
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
    """Retain questions and instructions within a text, those on lines of their own first, while there is room.

    Returns the questions on lines of their own.

    Quotations, and what the speakers of a transcript say to each other, address nobody else.
    """
    alone, within = list[TextSegment](), list[TextSegment]()
    begins_line = True
    for segment in layout.segments():
        is_alone = begins_line and segment.text.endswith("\n")
        begins_line = segment.text.endswith("\n")
        if segment.is_retained or not _addresses_reader(segment):
            continue
        (alone if is_alone else within).append(segment)
    questions = [segment for segment in alone if _is_question(segment)]
    left_bytes = 0.0
    for segments, share in ((questions, MAX_SHARE / 2), (alone, MAX_SHARE / 2), (within, _WITHIN_SHARE)):
        left_bytes = room_bytes * share + (left_bytes if segments is alone else 0)
        for segment in segments:
            if not segment.is_retained and segment.num_bytes <= left_bytes:
                left_bytes -= segment.num_bytes
                segment.retain()
    return [segment for segment in questions if segment.is_retained]


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
    return is_question(segment.text) or is_open_question(segment.text)


def _only_orders(segment: TextSegment) -> bool:
    return not _is_question(segment) and instructs(segment.text)


def _orders(segment: TextSegment) -> bool:
    return _is_question(segment) or instructs(segment.text)


def _addresses_reader(segment: TextSegment) -> bool:
    if type(segment.parent) is not SegmentGroup or _is_spoken(segment.parent):
        return False
    text = segment.text
    return not _QUOTED.match(text) and not _speaks(text) and (is_question(text) or instructs(text))


def _is_spoken(group: SegmentGroup) -> bool:
    """Return whether the group is a fence, or a line of a transcript."""
    return bool(group.opening) and not group.opening.endswith("\n")


def _speaks(text: str) -> bool:
    label = speaker_of(text)
    return bool(label) and not instructs(label)


def _leading_prose(children: Sequence[object], *, is_reversed: bool = False) -> Iterator[TextSegment]:
    """Yield the segments of prose up to the first table, fence, document or code."""
    for child in children:
        if isinstance(child, TextSegment):
            yield child
        elif type(child) is SegmentGroup and not child.closing:
            segments = [*child.segments()]
            yield from segments[::-1] if is_reversed else segments
        else:
            return


def _short_structure(children: Sequence[SegmentNode], max_bytes: int) -> list[TextSegment]:
    """Return the segments of what stands first, where that is no prose and short; none otherwise."""
    node = next((child for child in children if isinstance(child, SegmentGroup) or child.text.strip()), None)
    if not isinstance(node, SegmentGroup) or (type(node) is SegmentGroup and not node.closing):
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
