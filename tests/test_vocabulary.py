"""Names and sentences use the glossary's words, never the ones that it replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gateway", "routing_policies", "engine", "loadtests")

NEVER: Mapping[str, str] = {
    "quest": "cache race",
    "shelf": "partition",
    "shelves": "partitions",
    "vigil": "health probe, outlier ejection",
    "desk": "handlers",
    "outlook": "forecaster",
    "lookout": "forecaster",
    "foresight": "forecaster",
    "hope": "acceptance rate",
    "hopes": "acceptance rates",
    "faith": "acceptance rate",
    "prospect": "speculation statistics",
    "prospects": "speculation statistics",
    "thinking": "scheduling, proposing",
    "thought": "proposal",
    "roster": "sequence table",
    "entrance": "admission",
    "vain": "rejected",
    "spending": "budget used",
    "meanings": "prompt embeddings",
    "team": "thread pool",
    "tickets": "work queue",
    "weighing": "draft budget",
}
"""Words that no identifier contains, and what the glossary has in their place."""

HONEST_USES: Mapping[str, frozenset[str]] = {}
"""Identifiers that may contain such a word, by word, because it means something else there."""

_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name, node.lineno


def offences(text: str) -> Iterator[str]:
    for name, line in identifiers(ast.parse(text)):
        for word in {part.lower() for part in _PART.findall(name)} & NEVER.keys():
            if name not in HONEST_USES.get(word, ()):
                yield f"{line}: {name}: say {NEVER[word]}"


def test_identifiers_use_the_glossary() -> None:
    found = [f"{path.relative_to(ROOT)}:{line}" for path in modules() for line in offences(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("text", "count"), [("shelf = 1", 1), ("class NewShelf:\n    pass", 1), ("x.bookshelf", 0)])
def test_the_walk_sees_words_inside_names(text: str, count: int) -> None:
    assert len(list(offences(text))) == count
