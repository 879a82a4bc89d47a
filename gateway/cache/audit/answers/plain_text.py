"""Plain text of an answer: its words without Markdown, list markers and other formatting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_LINK: Final = re.compile(r"!?\[([^\[\]\n]*+)\]\([^()\n]*+\)")
_FOOTNOTE: Final = re.compile(r"\[\^?\d{1,3}\]")
_TAG: Final = re.compile(r"</?[a-zA-Z][^<>\n]*>")
_RULE: Final = re.compile(r"^[ \t]*+(?:[-*_=~]{3,}+|(?=[^\n]*---)[ \t:|-]++|(?:```|~~~).*)[ \t]*+$", re.MULTILINE)
_LINE_MARK: Final = re.compile(r"^[ \t]*(?:(?:>|#{1,6}|[-*+•‣◦–])[ \t]+)+", re.MULTILINE)
_STEP: Final = re.compile(
    r"\bstep[ \t]+(?:\d{1,2}|one|two|three|four|five|six|seven|eight|nine|ten)\b[ \t]*[:.)-]?", re.I
)
_COUNTED: Final = re.compile(r"(?<![^\s(:;,.*_])\(?(\d{1,2})[.)](?=[ \t])")
_LETTERED: Final = re.compile(r"^[ \t]*\(?[a-zA-Z][.)][ \t]+", re.MULTILINE)
_ORDER_WORD: Final = re.compile(
    r"\b(?:first|second|third|fourth|fifth|last)(?:ly)?(?=,)|\b(?:first|second|third|last)ly\b", re.I
)
_EMPHASIS: Final = re.compile(r"\*+|~~|`+|(?<!\w)_+|_+(?!\w)|\|")


def plain_text(text: str) -> str:
    """Return the text without formatting; numbers that only count the items of a list are formatting, too."""
    text = _LINK.sub(r"\1", text)
    for pattern in (_FOOTNOTE, _TAG):
        text = pattern.sub(" ", text)
    for pattern in (_RULE, _LINE_MARK, _STEP, _ORDER_WORD, _LETTERED):
        text = pattern.sub("\n", text)  # a new sentence begins
    return _EMPHASIS.sub(" ", _without_item_numbers(text))


def _without_item_numbers(text: str) -> str:
    """Return the text without markers such as `1.` or `2)` that count up from one."""
    parts, end = [], 0
    for start, stop in _item_numbers(text):
        parts.append(text[end:start])
        end = stop
    return "\n".join((*parts, text[end:]))


def _item_numbers(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the markers are: those of a run that counts 1, 2, …, or a lone 1 that begins a line."""
    run: list[tuple[int, int]] = []
    for found in _COUNTED.finditer(text):
        number = int(found[1])
        if number == len(run) + 1:
            run.append(found.span())
        elif number == 1:
            yield from _counted(run, text)
            run = [found.span()]
    yield from _counted(run, text)


def _counted(run: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    is_list = len(run) > 1 or (len(run) == 1 and not text[: run[0][0]].rpartition("\n")[2].strip())
    return run if is_list else []
