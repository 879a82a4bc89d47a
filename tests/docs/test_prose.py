"""Sentences of the README and the docs are short, links lead somewhere, and figures stand in one place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.blocks import PAGES, ROOT

MAX_WORDS: Final = 25
MAX_README_WORDS: Final = 900
_ALL: Final = (*PAGES, "loadtests/README.md", "CONTRIBUTING.md", "SECURITY.md")
_FENCED: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: str) -> Iterator[str]:
    """Yield the paragraphs and list items of a page; code, tables, headings and comments left out."""
    text = _FENCED.sub("", (ROOT / page).read_text())
    stored: list[str] = []
    for line in [*text.splitlines(), ""]:
        starts_item = re.match(r"^\s*([-*]|\d+\.) ", line) is not None
        is_other = line.startswith(("|", "#", "<!--"))
        if (not line.strip() or starts_item or is_other) and stored:
            yield " ".join(stored)
            stored = []
        if line.strip() and not is_other:
            stored.append(re.sub(r"^\s*([-*]|\d+\.) ", "", line).strip())


def sentences(paragraph: str) -> list[str]:
    """Split a paragraph where a sentence ends; a link counts as its words, inline code as one word."""
    plain = _LINK.sub(lambda link: link.group().partition("](")[0].lstrip("!["), paragraph)
    plain = re.sub(r"`[^`]*`", "code", plain).replace("**", "")
    return re.split(r"(?<=[.!?:;])\s+(?=[A-Z0-9(]|code)", plain)


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_needs_a_second_reading(page: str) -> None:
    long = [text for paragraph in prose(page) for text in sentences(paragraph) if len(text.split()) > MAX_WORDS]
    assert long == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= MAX_README_WORDS


@pytest.mark.parametrize("page", _ALL)
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    broken = []
    for target in _LINK.findall((ROOT / page).read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def anchors(file: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_figure_of_the_readme_stands_in_the_benchmarks_with_its_command() -> None:
    text, stated = (ROOT / "README.md").read_text(), (ROOT / "docs/benchmarks.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| (`penstock bench [^`]+`|same) \|$", text, re.MULTILINE)
    assert len(rows) > 5
    for figures, command in rows:
        assert command in stated
        for number in re.findall(r"\d+(?:[.,]\d+)*", figures):
            assert re.search(rf"(?<![\d.,]){re.escape(number)}(?!\d|[.,]\d)", stated), (figures, command)


def test_every_page_is_reachable_from_the_readme() -> None:
    found, queue = set[Path](), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in found or page.suffix != ".md":
            continue
        found.add(page)
        for target in _LINK.findall(page.read_text()):
            file = (page.parent / target.partition("#")[0]).resolve()
            if file.is_file():
                queue.append(file)
    pages = {*(ROOT / "docs").rglob("*.md")}
    assert pages - found == set()
