"""Split of a text into blocks: prose, code with and without a fence, JSON, tables and diffs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

BlockKind = Literal["prose", "fence", "code", "json", "table", "json_lines", "diff"]

MIN_JSON_CHARS: Final = 64
"""Length below which JSON within prose counts as prose."""
MAX_FAILED_PARSES: Final = 8
"""Texts that look like JSON and are none, after which no further one is parsed; each may cost the rest of the text."""

MAX_OPEN_FENCES: Final = 4
"""Fences without an end, after which no further one is read; each may cost the rest of the text."""

# CommonMark's fences: possibly indented, closed by at least as many marks. One without an end opens no block.
_FENCED: Final = re.compile(
    r"^[ \t]*(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})[^\n]*(?:$.*?^[ \t]*(?P=fence)[`~]*[ \t\r]*$|(?P<open>).*\Z)",
    re.MULTILINE | re.DOTALL,
)
_JSON_START: Final = re.compile(r"(?:^|(?<=[:：] ))(?=\{\s*[\"}]|\[\s*[\[{\"\d\]tfn-])", re.MULTILINE)
_JSON_LINE: Final = re.compile(r"\{\"(?s:.)*\}\s*$|\[(?s:.)*\]\s*$")
_DIFF_LINE: Final = re.compile(
    r"diff --git |index [0-9a-f]{6,}|--- |\+\+\+ |@@ |[ +\\-]|(?:new|deleted|old) (?:file )?mode|similarity |rename "
)
_DIFF_START: Final = re.compile(r"diff --git |@@ -\d|--- (?:a/|\S+\s*$)")

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
_TRIPLE: Final = re.compile(r'[rRbBuUfF]?(?P<quote>"""|\'\'\')')
_COMMENTED: Final = re.compile(r"(?:\s*(?:\#|//|/?\*)(?!\#{0,5} \w).*(?:\n|$))+\Z|\s*#!")
_STRING: Final = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|(?://|# ).*")
_IMPORT_LINE: Final = re.compile(r"from [\w.]+ import [\w., *()]+$|import [\w.]+(?: as \w+)?;?$")
_SPOKEN: Final = re.compile(r"(?:\b[^\W\d_]+,? ){6}")
"""Plain words in a row, as sentences have them and code does not."""
_PLAIN_WORDS: Final = re.compile(r"(?:[^\W\d_][\w'’-]*,? ){2,}[\w'’-]+[.?!:]?\s*$")
_SPOKEN_CHARS: Final = 30
_QUOTED_TRIPLE: Final = re.compile("\"'''\"|'\"\"\"'")
_MIN_CODE_LINES: Final = 3
_MAX_COMMENT_LINES: Final = 20
_MIN_SPARE_LINES: Final = 2000
"""Lines, besides two for each line of the text, that may be read for runs that turn out to be none."""
_MAX_BLANK_LINES: Final = 3
_CELLS: Final = re.compile(r"\t|\|")
_MIN_ROWS: Final = 3
_MIN_COMMAS: Final = 2
_MIN_CSV_ROWS: Final = 4


class Block(NamedTuple):
    """Stretch of a text of one kind."""

    kind: BlockKind
    text: str


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a text in order; joined, their texts are the text."""
    stripped = text.strip()
    if len(stripped) >= MIN_JSON_CHARS and stripped[0] in "{[" and is_json(stripped):
        begin = text.index(stripped[0])
        pieces = [Block("prose", text[:begin]), Block("json", stripped), Block("prose", text[begin + len(stripped) :])]
        return [block for block in pieces if block.text]
    blocks, end = list[Block](), 0
    for fence in _fences(text) if "```" in text or "~~~" in text else ():
        if _is_quoted(text, end, fence.start()):
            continue
        blocks += _unfenced(text[end : fence.start()])
        stop = fence.end()
        while stop < len(text) and text[stop] == "\n":
            stop += 1
        blocks.append(Block("fence", text[fence.start() : stop]))
        end = stop
    return [*blocks, *_unfenced(text[end:])]


def _fences(text: str) -> Iterator[re.Match[str]]:
    """Yield the fences that have an end; what stands behind one without is read like any text."""
    start = num_open = 0
    while num_open < MAX_OPEN_FENCES and (fence := _FENCED.search(text, start)):
        if fence.group("open") is None:
            yield fence
            start = fence.end()
        else:
            num_open += 1
            start = _next_line(text, fence.start())


def has_structure(text: str) -> bool:
    """Return whether any block of the text is not prose."""
    return any(block.kind != "prose" for block in blocks_of(text))


def is_json(text: str) -> bool:
    """Return whether the text is one JSON document."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def is_diff(text: str) -> bool:
    """Return whether the text is a unified diff."""
    return "\n@@ -" in f"\n{text}" and re.search(r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@", text, re.MULTILINE) is not None


def is_json_lines(text: str) -> bool:
    """Return whether every line of the text is a JSON object or list."""
    rows = [row for row in text.splitlines() if row.strip()]
    return len(rows) > 1 and all(map(_JSON_LINE.match, rows)) and all(map(is_json, rows))


def _is_quoted(text: str, begin: int, start: int) -> bool:
    """Return whether a fence stands within a string of several lines, as in the documentation of code."""
    return text.count('"""', begin, start) % 2 == 1


def _unfenced(text: str) -> Iterator[Block]:
    """Yield the blocks of a text without fences: JSON values first, then runs of lines."""
    end = num_failed = 0
    decoder = json.JSONDecoder()
    for found in _JSON_START.finditer(text):
        if found.end() < end or num_failed >= MAX_FAILED_PARSES:
            continue
        try:
            _, stop = decoder.raw_decode(text, found.end())
        except (ValueError, RecursionError):
            num_failed += 1
            continue
        if stop - found.end() < MIN_JSON_CHARS or (stop < len(text) and text[stop] not in "\r\n \t.,;"):
            continue
        if _JSON_LINE.match(_line_at(text, found.end())) and _JSON_LINE.match(_line_at(text, _next_line(text, stop))):
            continue  # the lines are read together
        yield from _bridged([*_runs(text[end : found.end()])])
        yield Block("json", text[found.end() : stop])
        end = stop
    yield from _bridged([*_runs(text[end:])])


def _bridged(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks with prose that stands within code counted as code: comments, and strings of several lines."""
    pending: list[Block] = []
    for block in blocks:
        pending.append(block)
        while len(pending) > 1 and _belong_together(pending):
            pending[:] = [Block("code", "".join(piece.text for piece in pending))]
        if len(pending) > 2 or block.kind not in ("code", "prose"):
            yield from pending[:-1]
            pending = pending[-1:]
    yield from pending


def _belong_together(blocks: Sequence[Block]) -> bool:
    first, last = blocks[0], blocks[-1]
    if last.kind != "code":
        return False
    if first.kind == "code":
        hole = sum(len(block.text) for block in blocks[1:-1])
        return all(block.kind == "prose" for block in blocks[1:-1]) and hole * 4 <= len(first.text) + len(last.text)
    return len(blocks) == 2 and first.kind == "prose" and _COMMENTED.match(first.text) is not None


def _line_at(text: str, start: int) -> str:
    end = text.find("\n", start)
    return text[start : end if end >= 0 else len(text)]


def _next_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return end + 1 if end >= 0 else len(text)


def _runs(text: str) -> Iterator[Block]:
    """Yield runs of lines of one kind."""
    if not text:
        return
    lines = text.splitlines(keepends=True)
    prose: list[str] = []
    number, num_spare = 0, _MIN_SPARE_LINES + 2 * len(lines)
    while number < len(lines):
        kind, end = _run_at(lines, number) if num_spare > 0 else (None, number + 1)
        if kind is None:
            num_spare -= end - number - 1
            prose.append(lines[number])
            number += 1
            continue
        if prose:
            yield Block("prose", "".join(prose))
            prose = []
        yield Block(kind, "".join(lines[number:end]))
        number = end
    if prose:
        yield Block("prose", "".join(prose))


def _run_at(lines: Sequence[str], start: int) -> tuple[BlockKind | None, int]:
    """Return the kind of the run that begins at a line, and the number of the line behind it.

    Where there is none, the number is that of the line behind those that were read for nothing.
    """
    line = lines[start]
    most = start + 1
    if line.isspace():
        return None, most
    if _DIFF_START.match(line):
        end = _while(lines, start, _is_diff_line)
        if any(row.startswith("@@ -") for row in lines[start:end]):
            return "diff", end
        most = max(most, end)
    if line[0] in "{[" and _JSON_LINE.match(line):
        end = _while(lines, start, lambda row: bool(_JSON_LINE.match(row)))
        if end - start > 1 and all(map(is_json, lines[start:end])):
            return "json_lines", end
        most = max(most, end)
    if (end := _table_end(lines, start)) > start:
        return "table", end
    is_code, end = _code_end(lines, start)
    return ("code", end) if is_code else (None, max(most, end))


def _is_diff_line(line: str) -> bool:
    return _DIFF_LINE.match(line) is not None or line == "\n"


def _while(lines: Sequence[str], start: int, holds: object) -> int:
    end = start
    while end < len(lines) and holds(lines[end]):  # type: ignore[operator]
        end += 1
    return end


def _table_end(lines: Sequence[str], start: int) -> int:
    """Return the end of the table that begins at a line; the start where there is none."""
    for separator, least, rows in (("|", 2, _MIN_ROWS), ("\t", 1, _MIN_ROWS), (",", _MIN_COMMAS, _MIN_CSV_ROWS)):
        count = lines[start].strip("\r\n").count(separator)
        if count < least or lines[start][0].isspace():
            continue
        end = start
        while end < len(lines) and _is_row(lines[end], separator, count):
            end += 1
        if end - start >= rows:
            return end
    return start


def _is_row(line: str, separator: str, count: int) -> bool:
    stripped = line.rstrip("\r\n")
    if separator == ",":
        return stripped.count(",") == count and stripped[-1:] not in ".;{(["
    return bool(stripped) and stripped.count(separator) >= (count if separator == "\t" else 2)


def _code_end(lines: Sequence[str], start: int) -> tuple[bool, int]:
    """Return whether code begins at a line, and the number of the line behind what was read of it."""
    if not (_is_strong(lines[start]) or _TRIPLE.match(lines[start]) or _opens_comment(lines, start)):
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
        if not (is_strong or depth > 0 or _WEAK_LINE.match(line) or _TRIPLE.match(line)):
            break
        if not is_strong and num_blank and line[0] in "#*" and not _leads_to_code(lines, number):
            break
        num_strong += is_strong
        num_flush += not line[0].isspace()
        num_blank = 0
        depth = max(0, depth + _balance(line))
        marks = _TRIPLE.findall(_QUOTED_TRIPLE.sub("", line))
        quote = marks[-1] if len(marks) % 2 else ""
        number += 1
        end = number
    if quote or num_strong < _MIN_CODE_LINES or 2 * num_strong < num_flush:
        return False, number
    while end < len(lines) and lines[end].isspace():
        end += 1
    return True, _before_words(lines, start, end, is_open=depth > 0)


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
    stripped = line.strip()
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
    return number < last and (_is_strong(lines[number]) or _TRIPLE.match(lines[number]) is not None)


def _balance(line: str) -> int:
    if '"' in line or "'" in line or "#" in line:
        line = _STRING.sub("", line)
    opened = line.count("{") + line.count("(") + line.count("[")
    return opened - line.count("}") - line.count(")") - line.count("]")
