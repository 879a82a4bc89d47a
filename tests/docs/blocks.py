"""Blocks: the fenced code of the README and the pages below `docs/`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")))
"""Generated reference pages have no blocks; benchmarks have tests of their own."""

_FENCE: Final = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\s*$")
_MARKER: Final = re.compile(r"^<!-- not run: (?P<reason>.+) -->$")
_FILE: Final = re.compile(r"^# (?P<name>[\w.-]+\.(?:yaml|toml|json|py))$")


class Block(NamedTuple):
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str
    not_run: str | None
    """Why it cannot run in a test, as the marker before it states."""

    @property
    def file_name(self) -> str | None:
        """The file that the block is the content of, by its first line."""
        named = _FILE.match(self.text.partition("\n")[0])
        return named["name"] if named else None

    @property
    def place(self) -> str:
        """Page and line, for messages."""
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page, top to bottom."""
    reason: str | None = None
    opened: tuple[int, str, int] | None = None
    lines: list[str] = []
    for number, line in enumerate((ROOT / page).read_text().splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is not None:
            start, language, indent = opened
            if fence and not fence["language"]:
                yield Block(page, start, language, "\n".join(lines) + "\n", reason)
                opened, reason = None, None
            else:
                lines.append(line[indent:])
        elif fence:
            opened, lines = (number, fence["language"], len(fence["indent"])), []
        elif line.strip():
            marker = _MARKER.match(line.strip())
            reason = marker["reason"] if marker else None
    assert opened is None, f"{page}: the last block is not closed"
