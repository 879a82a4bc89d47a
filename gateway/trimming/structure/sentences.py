"""Split of prose into sentences and lines, in scripts with and without spaces between words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gateway.trimming.structure.fences import is_mark_line
from gateway.trimming.structure.segment import SegmentGroup, SegmentNode, TextSegment

MAX_SENTENCE_CHARS: Final = 700
"""Length beyond which a sentence is cut between two words."""

_PIECE_CHARS: Final = 120
"""Length of the pieces where a long stretch has no space to cut at."""
_END: Final = re.compile(
    r"[.!?؟।։።။…。！？｡\n](?:"  # begins with one class of characters, to which a search skips quickly
    # No match within 3.5 or behind "e.g."; a run of marks matches once, from its first mark.
    r"""(?<=[.!?؟।։።။…])(?<![.!?؟।։።။…][.!?؟।։።။…])[.!?؟।։።။…]*+["')\]”’»]*+(?:\Z|\s+(?![a-z]))"""
    r"|(?<=[。！？｡])[。！？｡]*[」』”’）]*\s*"
    r"|(?<=\n)\s*)"
)
_SHORTENED: Final = re.compile(r"(?:\b(?:\w|Mr|Mrs|Ms|Dr|Prof|St|vs|etc|No|Nr|Art|Fig|Inc|Ltd|Co|bzw|ca)\.)\s+$")
"""End of a text in an abbreviation or an initial, which ends no sentence."""
_MIN_WRAPPED_CHARS: Final = 50
_MAX_WRAPPED_CHARS: Final = 120
"""Length of the lines that a paragraph with hard line breaks has; the next one begins with a small letter."""
_SPACE: Final = re.compile(r"\s")
_HEADING: Final = re.compile(r"#{1,6} \S|[=-]{3,}\s*$")
_HEADING_CHARS: Final = 120
_SPEAKER: Final = re.compile(
    r"(?:[\[(]?\d[\d:.,]*[\])]?\s*[-–]?\s*)?(?:[^\W\d][\w.'’-]*+\s?){1,4}(?:\([^)\n]{1,40}\)\s?)?[:：]\s*(?=\S)"
)
"""Name, with or without a time, that opens a line of a transcript."""
_SPEAKER_CHARS: Final = 60
_SEARCHED_CHARS: Final = 1 << 18
_WHOLE: Final = re.compile(r"(?<!`)(?P<marks>`{1,3})(?!`)[^`\n]{1,300}(?P=marks)(?!`)|</?[^\W\d][^<>\n]{1,300}>")
"""Code within a line, or a tag, in which no sentence ends."""
_CUT_REFERENCE: Final = re.compile(r"&#?\w{0,32}\Z")
"""Beginning of what may be a reference of XML, such as `&amp;`, at the end of a piece."""


def sentences_of(text: str) -> list[str]:
    """Split the text into sentences and lines, each with the space behind it; joined, they give the whole text."""
    found: list[str] = []
    start = 0
    codes = _WHOLE.finditer(text) if "`" in text or "<" in text else iter(())
    code = next(codes, None)
    for match in _ends_of(text):
        end = match.end()
        while code is not None and code.end() <= match.start():
            code = next(codes, None)
        if code is not None and code.start() < match.start():
            continue
        if end <= start or (text[match.start()] == "\n" and _is_wrapped(text, match.start())):
            continue
        if text[match.start()] == "." and _SHORTENED.search(text, max(start, end - 8), end):
            continue
        found += _short(text[start:end])
        start = end
    if start < len(text):
        found += _short(text[start:])
    return found


def _is_wrapped(text: str, newline: int) -> bool:
    """Return whether a sentence goes on behind this line break, which only bounds the width of the text."""
    following = text[newline + 1 : newline + 2]
    if not following.islower():
        return False
    line = text[text.rfind("\n", max(0, newline - _MAX_WRAPPED_CHARS - 1), newline) + 1 : newline].rstrip("\r")
    is_line = _MIN_WRAPPED_CHARS <= len(line) <= _MAX_WRAPPED_CHARS
    return is_line and line[-1] not in ".!?:;" and not _SPEAKER.match(text, newline + 1, newline + 1 + _SPEAKER_CHARS)


def _ends_of(text: str) -> Iterator[re.Match[str]]:
    """Yield the ends of sentences; the text is read in pieces, so that one search never holds up other threads."""
    for begin in range(0, len(text), _SEARCHED_CHARS):
        yield from _END.finditer(text, begin, begin + _SEARCHED_CHARS)


def prose_nodes(text: str) -> list[SegmentNode]:
    """Return the sentences of prose; those below a heading are one group, and so are those of one speaker's line."""
    nodes: list[SegmentNode] = []
    section: list[SegmentNode] | None = None
    heading, mark = "", ""
    for line in _paragraph_lines(text):
        if is_mark_line(line):  # one without a partner does not stay alone
            mark += line
            continue
        line, mark = mark + line, ""
        if len(line) <= _HEADING_CHARS and _HEADING.match(line):
            if section is not None:
                nodes.append(_section(heading, section))
            heading, section = line, []
            continue
        (nodes if section is None else section).extend(_line_nodes(line))
    if mark:
        target = nodes if section is None else section
        last = target.pop() if target and isinstance(target[-1], TextSegment) else None
        target.append(TextSegment(mark if last is None else last.rendered() + mark))
    if section is not None:
        nodes.append(_section(heading, section))
    return nodes


def speaker_of(line: str) -> str:
    """Return the label that opens a line of a transcript, such as `[10:02] Anna: `; empty without one."""
    found = _SPEAKER.match(line, 0, _SPEAKER_CHARS)
    return found.group() if found else ""


def _section(heading: str, children: list[SegmentNode]) -> SegmentNode:
    return SegmentGroup(children, heading) if children else TextSegment(heading)


def _line_nodes(line: str) -> list[SegmentNode]:
    sentences = sentences_of(line)
    label = speaker_of(line) if len(sentences) > 1 else ""
    if not label or len(label) >= len(sentences[0]):
        return [TextSegment(sentence) for sentence in sentences]
    spoken = [sentences[0][len(label) :], *sentences[1:]]
    return [SegmentGroup([TextSegment(sentence) for sentence in spoken], label)]


def _paragraph_lines(text: str) -> Iterator[str]:
    """Yield each line with the blank lines behind it."""
    start, end = 0, text.find("\n")
    while end >= 0:
        end += 1
        while end < len(text) and text[end].isspace():
            behind = text.find("\n", end)
            if behind < 0 or text[end:behind].strip():
                break
            end = behind + 1
        if not _is_wrapped(text, end - 1):
            yield text[start:end]
            start = end
        end = text.find("\n", end)
    if start < len(text):
        yield text[start:]


def _short(sentence: str) -> list[str]:
    """Return a sentence in pieces of at most MAX_SENTENCE_CHARS, cut between words where there are any."""
    if len(sentence) <= MAX_SENTENCE_CHARS:
        return [sentence]
    pieces, start, most = [], 0, MAX_SENTENCE_CHARS
    while len(sentence) - start > most:
        gap = _SPACE.search(sentence, start + MAX_SENTENCE_CHARS // 2, start + MAX_SENTENCE_CHARS)
        most = MAX_SENTENCE_CHARS if gap else _PIECE_CHARS
        end = gap.end() if gap else start + _PIECE_CHARS
        if not gap and (cut := _CUT_REFERENCE.search(sentence, end - 40, end)) is not None:
            end = cut.start()
        pieces.append(sentence[start:end])
        start = end
    return [*pieces, sentence[start:]]
