"""Removal of white space that carries no meaning: in prose of earlier messages, and in the layout of JSON documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.trimming.conversation import Conversation, edited
from gateway.trimming.structure.blocks import blocks_of

_GAP: Final = re.compile(r"(?<=\S) {3,}(?=\S)")
_SENTENCE_GAP: Final = re.compile(r"(?<=\w[.!?]) {3,}(?=\S)")
"""Gap behind the end of a sentence; any other may separate cells, fields or parts of a drawing."""
_LITERAL: Final = re.compile(
    r"""(`+[^`\n]*`+|"[^"\n]*"|'[^'\n]*'|“[^”\n]*”|„[^“”\n]*[“”]|«[^»\n]*»|「[^」\n]*」|『[^』\n]*』)"""
)
"""Spans of one line whose white space is kept: quotations and inline code."""
_LITERAL_LINE: Final = re.compile(r"[\s+<>@|:*#=\-]|.*[\t|]")
"""Lines with an indent, a tab or a cell, and lines that a diff or a list may begin with."""
_TOKENS: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s"]++', re.DOTALL)


def minify(conversation: Conversation) -> Conversation:
    """Return the conversation with earlier messages minified.

    System and developer messages and the last turn stay as they are. Each result depends on its message alone, so
    prefixes stay stable.
    """
    messages = list(conversation.messages)
    for index in conversation.old_messages():
        if not conversation.instructs(index):
            messages[index] = edited(messages[index], minify_text)
    return conversation.of(messages)


def minify_text(text: str) -> str:
    """Return a JSON document in compact form, and prose without blanks at line ends and runs of blank lines.

    Wide gaps between sentences are narrowed. Code, tables, diffs, indented lines, quotations, hard line breaks and all
    other gaps stay as they are.
    """
    blocks = blocks_of(text)
    if len(blocks) == 1 and blocks[0].kind == "prose":
        return _squeezed(text)
    is_document = all(block.kind == "json" or not block.text.strip() for block in blocks)
    if is_document:
        return "".join(_without_gaps(block.text) for block in blocks if block.kind == "json")
    return "".join(_squeezed(block.text) if block.kind == "prose" else block.text for block in blocks)


def _squeezed(text: str) -> str:
    lines = text.split("\n")
    return "\n".join([*_lines(lines)])


def _lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines that remain, narrowed; the last one is what stands behind the last line feed."""
    blank: list[str] = []
    before, is_quoted = "", False
    has_gap = [_has_gap(line) for line in lines]
    for number, line in enumerate(lines):
        is_last = number + 1 == len(lines)
        if not line.strip() and not is_quoted and not is_last:
            blank.append(line)
            continue
        is_code = line[:1].isspace() or before[:1].isspace()
        yield from blank if is_code else [""] * min(1, len(blank))
        blank, before = [], line
        was_quoted = is_quoted
        is_quoted ^= line.count('"') % 2 == 1 or line.count("`") % 2 == 1
        is_aligned = has_gap[number] and any(has_gap[max(0, number - 1) : number] + has_gap[number + 1 : number + 2])
        if was_quoted or is_quoted or is_aligned or _LITERAL_LINE.match(line):
            yield line
            continue
        is_break = not is_last and line.endswith("  ") and lines[number + 1].strip()
        yield _narrowed(line if is_break else line.rstrip(" "))


def _has_gap(line: str) -> bool:
    return "   " in line and _GAP.search(_LITERAL.sub("", line)) is not None


def _narrowed(line: str) -> str:
    if "   " not in line:
        return line
    pieces = _LITERAL.split(line)
    if any(_GAP.search(_SENTENCE_GAP.sub("", piece)) for piece in pieces[::2]):
        return line
    return "".join(piece if place % 2 else _SENTENCE_GAP.sub("  ", piece) for place, piece in enumerate(pieces))


def _without_gaps(document: str) -> str:
    """Return valid JSON without the white space between its tokens; strings and numbers are copied."""
    return "".join([token.group() for token in _TOKENS.finditer(document)])
