"""Names, docstrings, comments, docs and the admin page use the glossary's words, never the ones that it replaced."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gateway", "routing_policies", "engine", "loadtests", "tests")
PAGES = ("*.md", "docs/*.md", "loadtests/*.md", "gateway/admin/templates/*.html")

EXEMPT = (
    "engine/training/data/",
    "tests/test_vocabulary.py",
    "CHANGELOG.md",
)
"""Made-up texts of the training data, history, and this file."""

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
    "ask": "call, request, send",
    "asked": "called, requested, sent",
    "asking": "calling, requesting",
    "told": "given, reported",
    "said": "stated, reported",
    "saying": "stating, reporting",
    "judge": "auditor, match model, predictor; check, decide",
    "judges": "match models, predictors",
    "judged": "evaluated",
    "judging": "evaluating",
    "chance": "probability; rng",
    "chances": "probabilities",
    "floor": "threshold",
    "floors": "thresholds",
    "claim": "admission request, reservation",
    "claimed": "reserved",
    "promise": "error budget, target",
    "promised": "guaranteed",
    "promises": "guarantees",
    "guess": "draft token, attempt",
    "guesses": "draft tokens, attempts",
    "book": "statistics, buffer",
    "books": "statistics, counts",
    "quiet": "idle, light",
}
"""Words that no identifier, docstring, comment or page contains, and what the glossary has in their place."""

NEVER_IN_NAMES: Mapping[str, str] = {
    "asks": "calls, requests",
    "tells": "reports",
    "say": "print, report",
    "says": "states, reports",
    "kept": "cached, stored, retained",
    "looks": "checks, reads",
    "rounds": "repeats, cycles, further steps",
    "claims": "reservations",
}
"""Words that only identifiers avoid, because sentences have honest uses of them."""

HONEST_USES: Mapping[str, frozenset[str]] = {
    "claims": frozenset({"JWTClaimsRegistry", "claims"}),  # of a JSON web token
    "floor": frozenset({"floor", "_floor", "floor_s", "FLOOR_S", "_FLOOR_S", "_ERROR_FLOOR"}),  # of numbers
    "rounds": frozenset({"rounds_inputs", "_rounds_inputs"}),  # to integers
    "thinking": frozenset({"thinking", "enable_thinking"}),  # a model's reasoning
}
"""Identifiers that may contain such a word, by word, because it means something else there."""

PHRASES: tuple[str, ...] = (
    "kept answer",
    "kept question",
    "answers given before",
    "prompts made shorter",
    "lesser form",
    "looked up in what was",
    "step token budget",
    "nobody is asked",
    "nobody was refused",
)
"""Phrases that no docstring, comment or page contains, in lower case."""

_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_WORDS = re.compile(rf"(?<![\w/.-])({'|'.join(NEVER)})(?![\w/-])", re.IGNORECASE)
_CODE = re.compile(r"```.*?```|`[^`]*`|math\.floor|\{[^{}]*\}", re.DOTALL)


def is_exempt(path: Path) -> bool:
    return str(path.relative_to(ROOT)).startswith(EXEMPT)


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (path for path in sorted((ROOT / package).rglob("*.py")) if not is_exempt(path))


def pages() -> Iterator[Path]:
    for pattern in PAGES:
        yield from (path for path in sorted(ROOT.glob(pattern)) if not is_exempt(path))


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name, node.lineno


def prose(text: str) -> Iterator[tuple[str, int]]:
    """Yield the docstrings and comments of a module, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and token.string.startswith('"""')
        if token.type == tokenize.COMMENT or (is_docstring and token.line.lstrip().startswith('"""')):
            yield token.string, token.start[0]


def offences_in_names(text: str) -> Iterator[str]:
    never = {**NEVER, **NEVER_IN_NAMES}
    for name, line in identifiers(ast.parse(text)):
        for word in {part.lower() for part in _PART.findall(name)} & never.keys():
            if name not in HONEST_USES.get(word, ()):
                yield f"{line}: {name}: say {never[word]}"


def offences_in_prose(text: str, line: int = 1) -> Iterator[str]:
    plain = _CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, sentence in enumerate(plain.split("\n"), line):
        for found in _WORDS.findall(sentence):
            yield f"{number}: {found}: say {NEVER[found.lower()]}"
        for phrase in PHRASES:
            if phrase in sentence.lower():
                yield f"{number}: {phrase}: see docs/glossary.md"


def test_identifiers_use_the_glossary() -> None:
    found = [f"{path.relative_to(ROOT)}:{each}" for path in modules() for each in offences_in_names(path.read_text())]
    assert not found, "\n".join(found)


def test_docstrings_and_comments_use_the_glossary() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{each}"
        for path in modules()
        for text, line in prose(path.read_text())
        for each in offences_in_prose(text, line)
    ]
    assert not found, "\n".join(found)


def test_docs_and_the_admin_page_use_the_glossary() -> None:
    found = [f"{path.relative_to(ROOT)}:{each}" for path in pages() for each in offences_in_prose(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("text", "count"), [("shelf = 1", 1), ("class NewShelf:\n    pass", 1), ("x.bookshelf", 0)])
def test_the_walk_sees_words_inside_names(text: str, count: int) -> None:
    assert len(list(offences_in_names(text))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('def f():\n    """Return what was said."""', 1),
        ("x = 1  # nobody is asked\n", 2),
        ('"""`said` is an array."""', 0),
        ('x = "he said"', 0),
    ],
)
def test_the_walk_reads_docstrings_and_comments_without_code(text: str, count: int) -> None:
    assert sum(len(list(offences_in_prose(each, line))) for each, line in prose(text)) == count
