"""Fences of a text: pairs of marks around code, in lists and quotations too, and behind words on a line."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

_MARKS: Final = re.compile(r"[`~]{3,}+")
_LEAD: Final = re.compile(r"[ \t]*(?:>[ \t]*)*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?")
"""Text before a mark on its line: an indent, marks of a quotation, a bullet."""
_MIDDLE_INFO: Final = re.compile(r"[\w+#.-]{0,24}\s*")
"""Text behind a mark in the middle of a line; more words belong to a sentence."""
_UNQUOTED_LINE: Final = re.compile(r"^(?![ \t]*>)", re.MULTILINE)


class Fence(NamedTuple):
    """Place of one fence in a text, with the lines of its marks and the blank lines behind it."""

    start: int
    body_start: int
    body_end: int
    end: int
    is_quoted: bool
    """True within a quotation, of which every line begins with `>`."""


class _Mark(NamedTuple):
    start: int
    line_end: int
    symbol: str
    width: int
    block_start: int
    """Place at which a fence begins that this mark opens: its line, or the end of the words before it."""
    opens: bool
    closes: bool
    is_quoted: bool


def fences_of(text: str) -> list[Fence]:
    """Return the fences of a text in order; a mark without a partner is text like any other."""
    if "```" not in text and "~~~" not in text:
        return []
    marks = _marks_of(text)
    partners = _partners(marks, _quotations(text, marks))
    found, number = list[Fence](), 0
    while number < len(marks):
        opening, partner = marks[number], partners[number]
        if not opening.opens or partner is None:
            number += 1
            continue
        closing = marks[partner]
        end = closing.line_end
        while end < len(text) and text[end] == "\n":
            end += 1
        begin = text.rfind("\n", 0, closing.start) + 1
        found.append(Fence(opening.block_start, opening.line_end + 1, begin, end, opening.is_quoted))
        number = partner + 1
    return found


def is_mark_line(line: str) -> bool:
    """Return whether a line is the mark of a fence and nothing else."""
    lead = _LEAD.match(line)
    rest = line[lead.end() :].rstrip() if lead else ""
    return rest.startswith(("```", "~~~")) and _MIDDLE_INFO.fullmatch(rest.lstrip(rest[0])) is not None


def info_of(opening: str) -> str:
    """Return what the first line of a fence says of its content."""
    lead = _LEAD.match(opening)
    return opening[lead.end() if lead else 0 :].strip().lstrip("`~").strip()


def lead_of(opening: str) -> str:
    """Return what stands before each line of a fence, by its first one: an indent, and marks of a quotation."""
    lead = _LEAD.match(opening)
    return re.sub(r"[^\s>]", " ", lead.group()) if lead else ""


def _marks_of(text: str) -> list[_Mark]:
    """Return the lines with one run of marks, each line read once."""
    marks, line_end = list[_Mark](), -1
    for run in _MARKS.finditer(text):
        if run.start() < line_end:  # a second run on the line: code within a sentence
            if marks and marks[-1].line_end == line_end:
                marks.pop()
            continue
        line_start = text.rfind("\n", max(0, line_end), run.start()) + 1
        line_end = text.find("\n", run.end())
        line_end = len(text) if line_end < 0 else line_end
        symbol, lead, info = run.group()[0], text[line_start : run.start()], text[run.end() : line_end]
        if run.group().strip(symbol) or (symbol == "`" and ("`" in lead or "`" in info)):
            continue
        is_first = _LEAD.fullmatch(lead) is not None
        opens = is_first or (symbol == "`" and _MIDDLE_INFO.fullmatch(info) is not None)
        closes = not info.strip() and not lead.strip(" \t>")
        place = line_start if is_first else run.start()
        is_quoted = is_first and ">" in lead
        marks.append(_Mark(run.start(), line_end, symbol, len(run.group()), place, opens, closes, is_quoted))
    return marks


def _quotations(text: str, marks: Sequence[_Mark]) -> list[int]:
    """Return the number of the quotation that each mark stands in; -1 outside of any."""
    if not any(mark.is_quoted for mark in marks):
        return [-1] * len(marks)
    unquoted = [found.start() for found in _UNQUOTED_LINE.finditer(text)]
    return [bisect_right(unquoted, mark.start) if mark.is_quoted else -1 for mark in marks]


def _partners(marks: Sequence[_Mark], quotations: Sequence[int]) -> list[int | None]:
    """Return for each mark the next one that closes it: the same symbol, at least as often, in the same quotation."""
    partners: list[int | None] = [None] * len(marks)
    later: dict[tuple[str, int], list[tuple[int, int]]] = {}  # negative width and number, the wider ones first
    for number in range(len(marks) - 1, -1, -1):
        mark = marks[number]
        closing = later.setdefault((mark.symbol, quotations[number]), [])
        place = bisect_right(closing, (-mark.width, len(marks)))
        if place:
            partners[number] = closing[place - 1][1]
        if mark.closes:
            while closing and -closing[-1][0] <= mark.width:
                closing.pop()
            closing.append((-mark.width, number))
    return partners
