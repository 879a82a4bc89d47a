"""Split of a text into blocks: prose, code with and without a fence, JSON, tables and diffs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from gateway.trimming.relevance.instructions import is_spoken
from gateway.trimming.structure.code_lines import code_end, parted
from gateway.trimming.structure.entries import YamlRuns, is_section, open_quote
from gateway.trimming.structure.fences import fences_of
from gateway.trimming.structure.markup import markup_spans

BlockKind = Literal["prose", "fence", "code", "json", "table", "json_lines", "diff", "yaml", "sections", "markup"]

MIN_JSON_CHARS: Final = 64
"""Length below which JSON within prose counts as prose."""
MAX_FAILED_PARSES: Final = 8
"""Texts that look like JSON and are none, after which no further one is parsed; each may cost the rest of the text."""

_JSON_START: Final = re.compile(
    r"[{\[](?:(?<=\n.)|(?<=[:：] .)|(?<!(?s:.).))(?:(?<=\{)(?=\s*[\"}])|(?<=\[)(?=\s*[\[{\"\d\]tfn-]))"
)
"""Bracket that begins a JSON value, at the beginning of a line or behind a colon.

The bracket comes first in the expression, because a search for a character is ten times as fast as one for a place.
"""
_JSON_LINE: Final = re.compile(r"\{\"(?s:.)*\}\s*$|\[(?s:.)*\]\s*$")
_DIFF_LINE: Final = re.compile(
    r"diff --git |index [0-9a-f]{6,}|--- |\+\+\+ |@@ |[ +\\-]|(?:new|deleted|old) (?:file )?mode|similarity |rename "
)
_DIFF_START: Final = re.compile(r"diff --git |@@ -\d|--- (?:a/|\S+\s*$)")

_COMMENTED: Final = re.compile(r"(?:\s*(?:\#|//|/?\*)(?!\#{0,5} \w).*(?:\n|$))+\Z|\s*#!")
_MIN_SPARE_LINES: Final = 2000
"""Lines, besides one for each line of the text, that may be read for runs that turn out to be none."""
_COMMENT_START: Final = re.compile(r"\s*(?:#|//|/\*|\*/|(?<=\s)\*)|\s*$")
_STRING_START: Final = re.compile(r"^[rRbBuUfF]?(\"\"\"|''')", re.MULTILINE)
_BLOCK_COMMENT: Final = re.compile(r"^/\*", re.MULTILINE)
_BLOCK_COMMENTS: Final = re.compile(r"/\*(?:[^*]|\*(?!/))*+(?:\*/|(?P<open>\Z))|^(?://|#).*", re.MULTILINE)
_CODE_SHARE: Final = 0.6
"""Share of the text from the first to the last code from which all of it counts as code."""
_SETTING: Final = re.compile(r"[\w.\"'-]+\s*[=:]|\s+\S|\]")
_MIN_SECTIONS: Final = 2
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
    for kind, start, stop in _enclosed(text):
        blocks += _unfenced(text[end:start])
        blocks.append(Block(kind, text[start:stop]))
        end = stop
    return [*blocks, *_unfenced(text[end:])]


def fenced_blocks(text: str) -> list[Block]:
    """Return the fences of a text, wherever they stand, and the prose between them."""
    blocks, end = list[Block](), 0
    for fence in fences_of(text):
        blocks += [Block("prose", text[end : fence.start])] if fence.start > end else []
        blocks.append(Block("fence", text[fence.start : fence.end]))
        end = fence.end
    return [*blocks, Block("prose", text[end:])] if end < len(text) else blocks


def _enclosed(text: str) -> list[tuple[BlockKind, int, int]]:
    """Return the places of markup, and of fences outside of it, in order."""
    fences = [*_fences(text)]
    markup = markup_spans(text, fences) if "<" in text else []
    if not markup:
        return [("fence", *span) for span in fences]
    found: list[tuple[BlockKind, int, int]] = [("markup", *span) for span in markup]
    place = 0
    for start, end in fences:
        while place < len(markup) and markup[place][1] <= start:
            place += 1
        if place == len(markup) or end <= markup[place][0]:
            found.append(("fence", start, end))
    return sorted(found, key=lambda block: block[1])


def _fences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of fences, without those in a string of several lines, as in the documentation of code."""
    counted = num_quotes = 0
    for fence in fences_of(text):
        num_quotes += text.count('"""', counted, fence.start)
        counted = fence.start
        if num_quotes % 2 == 0:
            yield fence.start, fence.end
            counted, num_quotes = fence.end, 0


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


def _unfenced(text: str) -> Iterator[Block]:
    """Yield the blocks of a text without fences: JSON values first, then runs of lines."""
    end = num_failed = 0
    decoder = json.JSONDecoder()
    for found in _JSON_START.finditer(text):
        if found.start() < end or num_failed >= MAX_FAILED_PARSES:
            continue
        try:
            _, stop = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            num_failed += 1
            continue
        if stop - found.start() < MIN_JSON_CHARS or (stop < len(text) and text[stop] not in "\r\n \t.,;"):
            continue
        if _JSON_LINE.match(_line_at(text, found.start())) and _JSON_LINE.match(_line_at(text, _next_line(text, stop))):
            continue  # the lines are read together
        yield from _lines_of(text[end : found.start()])
        yield Block("json", text[found.start() : stop])
        end = stop
    yield from _lines_of(text[end:])


def _lines_of(text: str) -> Iterator[Block]:
    """Yield runs of lines; a sentence to the reader between code is prose."""
    for block in _bridged([*_runs(text)]):
        if block.kind == "code":
            for is_code, piece in parted(block.text, is_spoken):
                yield Block("code" if is_code else "prose", piece)
        else:
            yield block


def _bridged(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks with prose that stands within code counted as code: comments, and strings of several lines.

    Where most of the text from the first to the last code is code, all of it is.
    """
    codes = [place for place, block in enumerate(blocks) if block.kind == "code"]
    if not codes:
        yield from blocks
        return
    first, last = codes[0], codes[-1] + 1
    body = "".join(block.text for block in blocks[first:last])
    if sum(len(blocks[place].text) for place in codes) < _CODE_SHARE * len(body):
        yield from _joined(blocks)
        return
    before = "".join(block.text for block in blocks[:first])
    lead = _lead_start(before, body)
    lead = 0 if before[:lead].isspace() else lead
    end = 0
    for block in blocks[:first]:
        if lead > end:
            yield Block(block.kind, block.text[: lead - end])
        end += len(block.text)
    if all(map(_COMMENT_START.match, "".join(block.text for block in blocks[last:]).splitlines())):
        body, last = "".join(block.text for block in blocks[first:]), len(blocks)
    yield Block("code", before[lead:] + body)
    yield from blocks[last:]


def _lead_start(text: str, code: str) -> int:
    """Return where the comments or the string begin with which prose before code ends; its length where none does."""
    string = _STRING_START.search(text)
    if string is not None:
        mark = string.group(1)
        if (text.count(mark, string.start()) + code.count(mark)) % 2 == 0:
            before = text[: string.start()]
            return 0 if all(map(_COMMENT_START.match, before.splitlines())) else string.start()
    comment = _BLOCK_COMMENT.search(text)
    if comment is not None and not _without_comments(text[comment.start() :]).strip():
        return comment.start()
    start, lines = len(text), text.splitlines(keepends=True)
    while lines and _COMMENT_START.match(lines[-1]):
        start -= len(lines.pop())
    return start + len(text[start:]) - len(text[start:].lstrip("\r\n"))


def _without_comments(text: str) -> str:
    """Return a text without its comments; one without an end stays."""
    return _BLOCK_COMMENTS.sub(lambda found: "" if found["open"] is None else found.group(), text)


def _joined(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks with short prose between code, and comments before code, counted as code."""
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
    number, num_spare, yaml = 0, _MIN_SPARE_LINES + len(lines), YamlRuns(lines)
    while number < len(lines):
        kind, end = _run_at(lines, number, yaml) if num_spare > 0 else (None, number + 1)
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


def _run_at(lines: Sequence[str], start: int, yaml: YamlRuns) -> tuple[BlockKind | None, int]:
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
    if (end := yaml.end_at(start)) > start:
        return "yaml", _behind_blanks(lines, end)
    if line[0] == "[" and is_section(line) and (end := _sections_end(lines, start)) > start:
        return "sections", _behind_blanks(lines, end)
    is_code, end = code_end(lines, start)
    return ("code", end) if is_code else (None, max(most, end))


def _is_diff_line(line: str) -> bool:
    return _DIFF_LINE.match(line) is not None or line == "\n"


def _while(lines: Sequence[str], start: int, holds: object) -> int:
    end = start
    while end < len(lines) and holds(lines[end]):  # type: ignore[operator]
        end += 1
    return end


def _behind_blanks(lines: Sequence[str], end: int) -> int:
    while end < len(lines) and lines[end].isspace():
        end += 1
    return end


def _sections_end(lines: Sequence[str], start: int) -> int:
    """Return the end of the sections of settings that begin at a line; the start where there are fewer than two."""
    end, num_names, quote = start, 0, ""
    for number in range(start, len(lines)):
        line = lines[number]
        if quote or line.isspace():
            quote = "" if quote and quote in line else quote
            end = end if quote or line.isspace() else number + 1
            continue
        quote = open_quote(line)
        is_name = is_section(line)
        if not (is_name or _SETTING.match(line) or line[0] in "#;"):
            break
        num_names += is_name
        end = number + 1
    return end if num_names >= _MIN_SECTIONS else start


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
