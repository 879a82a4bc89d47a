"""Grammars that would take too long end a process that may die, and the next one is served."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.sampling.grammar import GrammarError
from engine.sampling.grammar_checker import CheckedCompiler, GrammarChecker
from tests.engine.frontend.tiny_model import write_model

VOCAB_SIZE = 400


BOMB = {
    "type": "object",
    "properties": {f"p{i}": {"type": "integer", "multipleOf": 99991 + i} for i in range(50)},
}
"""Takes minutes and gigabytes to compile."""


def source(schema: object) -> str:
    return json.dumps({"grammars": [{"json_schema": schema}]})


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def checker(model_dir: Path) -> Iterator[GrammarChecker]:
    checker = GrammarChecker(model_dir, VOCAB_SIZE)
    yield checker
    checker.close()


def test_a_bomb_is_refused_within_a_second_and_the_next_grammar_served(
    checker: GrammarChecker, model_dir: Path
) -> None:
    compiler = CheckedCompiler(checker, model_dir, VOCAB_SIZE)
    compiler.prepare()
    started_at = time.monotonic()
    with pytest.raises(GrammarError, match="too long"):
        compiler.compile(source(BOMB))
    assert time.monotonic() - started_at < 1.0
    assert compiler.compile(source({"type": "integer"})).failure is None
    with pytest.raises(GrammarError, match="strng"):
        compiler.compile(source({"type": "strng"}))


def test_a_checking_process_that_died_is_replaced(checker: GrammarChecker) -> None:
    checker.start()
    checker.close()
    checker.check(source({"type": "integer"}))


def test_a_model_without_a_tokenizer_is_reported_by_both_sides(tmp_path: Path) -> None:
    checker = GrammarChecker(tmp_path, VOCAB_SIZE)
    with pytest.raises(GrammarError, match=r"tokenizer\.json"):
        CheckedCompiler(checker, tmp_path, VOCAB_SIZE).prepare()
    with pytest.raises(GrammarError, match=r"tokenizer\.json"):
        checker.start()
    checker.close()
