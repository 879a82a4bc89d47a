"""Recognition of program text without a fence, by its lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

_KEYWORD_LINE: Final = re.compile(
    r"(?:(?:async )?def \w+\s*\(.*|class \w+(?:\(.*|[^.!?]*[:{])\s*$|(?:if|elif|else|for|while|try|except"
    r"|finally|with)\b.*:\s*(?:#.*)?$"
    r"|(?:from [\w.]+ )?import [\w.*{(\"'][^.!?]*$|import [\w.]+(?:\.[\w*]+)*;?$|package [\w.]+;?$"
    r"|@\w[\w.]*(?:\(.*)?$"
    r"|(?:func|function|fn|pub fn|export|const|let|var|type|struct|enum|interface|impl|public|private|protected"
    r"|static)\b.*[({=,;]\s*(?://.*)?$"
    r"|(?:const|let|var|val|type) [\w{\[].*=.*|[\"']use strict|(?:return|raise|throw|yield|await|break|continue"
    r"|pass|del|assert|global)\b[^.!?]*$|#include\b.*|#!.*)"
)
_ENDED_LINE: Final = re.compile(r".*(?:[;{}\\]|\)\s*=>|\}\)|\],?|\},|=> ?[\[({]|[(\[])\s*(?://.*|#.*)?$")
_ASSIGNED: Final = re.compile(
    r"[A-Za-z_$][\w.$\[\]\"', *]{0,60}(?::\s?[\w.\[\], |]{1,60})?\s(?::=|[-+*/|&%]?=)\s\S"
    r"|[A-Za-z_$][\w.$]*(?:\([^)]*\)[;,]?\s*$|=[\w\[({\"'])"
)
_WEAK_LINE: Final = re.compile(r"\s|#|//|/\*|\*|[)\]}]|\"\"\"|'''")
TRIPLE_QUOTE: Final = re.compile(r'[rRbBuUfF]?(?P<quote>"""|\'\'\')')
_STRING: Final = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|(?://|# ).*")
_IMPORT_LINE: Final = re.compile(r"from [\w.]+ import [\w., *()]+$|import [\w.]+(?: as \w+)?;?$")
_SPOKEN: Final = re.compile(r"(?:\b[^\W\d_]+,? ){6}")
"""Plain words in a row, as sentences have them and code does not."""
_PLAIN_WORDS: Final = re.compile(r"(?!(?:del|global|assert) )(?:[^\W\d_][\w'’-]*,? ){2,}[\w'’-]+[.?!:]?\s*$")
_REMARK: Final = re.compile(r"(?<=\S)  +# .*$")
"""Comment behind a statement, after two spaces."""
_SPOKEN_CHARS: Final = 30
_QUOTED_TRIPLE: Final = re.compile("\"'''\"|'\"\"\"'")
_OPEN_MARK: Final = re.compile(
    r"(?P<mark>\"\"\"|'''|/\*|`)|(?P<remark>#|//|--)|\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?"
)
_MARK_ENDS: Final = {'"""': '"""', "'''": "'''", "/*": "*/", "`": "`"}
_GOES_ON: Final = re.compile(r"[\\,(\[{=+]\s*$")
_MIN_CODE_LINES: Final = 3
_LINE_CHARS: Final = 2_000
"""Characters of the beginning of a line, and of its end, that show whether it is code."""
_MAX_COMMENT_LINES: Final = 20
_MAX_BLANK_LINES: Final = 3


def code_end(lines: Sequence[str], start: int) -> tuple[bool, int]:
    """Return whether code begins at a line, and the number of the line behind what was read of it."""
    if not (_is_strong(lines[start]) or TRIPLE_QUOTE.match(lines[start]) or _opens_comment(lines, start)):
        return False, start
    end, num_strong, num_flush, num_blank, depth = start, 0, 0, 0, 0
    number = start
    quote = ""
    while number < len(lines):
        line = lines[number]
        if quote:
            if quote in line:
                quote = ""
            number += 1
            end = number
            continue
        if line.isspace():
            num_blank += 1
            if num_blank > _MAX_BLANK_LINES and depth <= 0:
                break
            number += 1
            continue
        is_strong = _is_strong(line)
        if not (is_strong or depth > 0 or _WEAK_LINE.match(line) or TRIPLE_QUOTE.match(line)):
            break
        if not is_strong and num_blank and line[0] in "#*" and not _leads_to_code(lines, number):
            break
        num_strong += is_strong
        num_flush += not line[0].isspace()
        num_blank = 0
        depth = max(0, depth + _balance(line))
        marks = TRIPLE_QUOTE.findall(_QUOTED_TRIPLE.sub("", line))
        quote = marks[-1] if len(marks) % 2 else ""
        number += 1
        end = number
    if quote or num_strong < _MIN_CODE_LINES or 2 * num_strong < num_flush:
        return False, number
    while end < len(lines) and lines[end].isspace():
        end += 1
    return True, _before_words(lines, start, end, is_open=depth > 0)


def parted(text: str, is_spoken: Callable[[str], bool]) -> list[tuple[bool, str]]:
    """Return code without a fence in stretches, each with whether it is code, and not lines spoken to the reader.

    Lines within a string, a comment or a statement that goes on are code.

    Args:
        text: Lines of code.
        is_spoken: Returns whether a line is a sentence to the reader.
    """
    lines = text.splitlines(keepends=True)
    found: list[tuple[bool, str]] = []
    begin = number = 0
    quote, before = "", ""
    while number < len(lines):
        line = lines[number]
        if quote or not line[0].isalpha() or _GOES_ON.search(before) or not is_spoken(line):
            quote = _open_mark(line, quote)
            before = line if not line.isspace() else ""
            number += 1
            continue
        end = _behind_blank(lines, number + 1)
        found += [(True, "".join(lines[begin:number]))] if number > begin else []
        found.append((False, "".join(lines[number:end])))
        begin = number = end
        before = ""
    return [*found, (True, "".join(lines[begin:]))] if begin < len(lines) else found


def _open_mark(line: str, mark: str) -> str:
    """Return the mark of the string or comment that is open behind a line; empty where none is."""
    place = 0
    while True:
        if mark:
            place = line.find(_MARK_ENDS[mark], place)
            if place < 0:
                return mark
            place += len(_MARK_ENDS[mark])
            mark = ""
        found = _OPEN_MARK.search(line, place)
        if found is None or found["remark"]:
            return ""
        place = found.end()
        mark = found["mark"] or ""


def _behind_blank(lines: Sequence[str], number: int) -> int:
    while number < len(lines) and lines[number].isspace():
        number += 1
    return number


def _before_words(lines: Sequence[str], start: int, end: int, *, is_open: bool) -> int:
    """Return where code ends if the paragraphs behind it are words; with a bracket left open, whatever is no code is.

    Brackets in strings and comments are no brackets, so a question behind code may seem to stand within one.
    """
    while True:
        begin = end
        while begin > start and lines[begin - 1].isspace():
            begin -= 1
        while begin > start and not lines[begin - 1].isspace():
            begin -= 1
        if begin == start or not all(_is_words(line, is_open=is_open) for line in lines[begin:end]):
            return end
        end = begin


def _is_words(line: str, *, is_open: bool) -> bool:
    if line.isspace():
        return True
    if line[0].isspace() or _IMPORT_LINE.match(line.strip()):
        return False
    return _PLAIN_WORDS.match(line) is not None or (is_open and not _is_strong(line) and not _WEAK_LINE.match(line))


def _is_strong(line: str) -> bool:
    stripped = _REMARK.sub("", line.strip())
    if len(stripped) > 2 * _LINE_CHARS:
        stripped = stripped[:_LINE_CHARS] + stripped[-_LINE_CHARS:]
    if _IMPORT_LINE.match(stripped):
        return True
    if len(stripped) > _SPOKEN_CHARS and not line[0].isspace() and _SPOKEN.search(_STRING.sub("", stripped)):
        return False
    return bool(_KEYWORD_LINE.match(stripped) or _ENDED_LINE.match(stripped) or _ASSIGNED.match(stripped))


def _opens_comment(lines: Sequence[str], start: int) -> bool:
    return lines[start].startswith(("# ", "//", "/*")) and _leads_to_code(lines, start)


def _leads_to_code(lines: Sequence[str], start: int) -> bool:
    """Return whether a comment is followed by code; a Markdown heading is followed by prose."""
    number, last = start, min(len(lines), start + _MAX_COMMENT_LINES)
    while number < last and (lines[number].isspace() or lines[number].startswith(("#", "//", "/*", "*", " *"))):
        number += 1
    return number < last and (_is_strong(lines[number]) or TRIPLE_QUOTE.match(lines[number]) is not None)


def _balance(line: str) -> int:
    if '"' in line or "'" in line or "#" in line:
        line = _STRING.sub("", line)
    opened = line.count("{") + line.count("(") + line.count("[")
    return opened - line.count("}") - line.count(")") - line.count("]")
