"""Grammars are compiled once each, beside the loop; what would take too long takes down a process that may die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import cast

import pytest

from engine.sampling.grammar import MAX_GRAMMAR_BYTES, GrammarError, GrammarState
from engine.sampling.grammar_check import read_text
from engine.sampling.grammar_checker import CheckedCompiler, GrammarChecker
from engine.sampling.grammar_compiler import MAX_CACHED, GrammarCompiler, GrammarDone
from tests.engine.frontend.tiny_model import write_model

VOCAB_SIZE = 400
BOMB = {
    "type": "object",
    "properties": {f"p{i}": {"type": "integer", "multipleOf": 99991 + i} for i in range(50)},
}
"""Takes minutes and gigabytes to compile."""


class StubState:
    """Stands for a compiled grammar."""

    def fork(self) -> StubState:
        return StubState()


class PanicException(BaseException):
    """As pyo3 raises it when Rust code panics: no Exception."""


class StubCompiler:
    """Compiles on request; counts."""

    def __init__(self) -> None:
        self.sources: list[str] = []
        self.may_continue = threading.Event()
        self.may_continue.set()

    def prepare(self) -> None:
        raise GrammarError("not now")

    def compile(self, source: str) -> GrammarState:
        self.may_continue.wait(10)
        self.sources.append(source)
        if source == "wrong":
            raise GrammarError("it is wrong")
        if source == "broken":
            raise RuntimeError("a fault of ours")
        if source == "panic":
            raise PanicException("a fault of ours")
        return cast(GrammarState, StubState())


class Bench:
    """A compiler at work with its results in a queue."""

    def __init__(self) -> None:
        self.stub = StubCompiler()
        self.results: SimpleQueue[GrammarDone] = SimpleQueue()
        self.compiler = GrammarCompiler(self.stub, self.results.put)
        self.compiler.start()

    def get(self) -> GrammarDone:
        return self.results.get(timeout=10)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_text_is_compiled_once_for_all_who_wait_and_all_who_come_later(bench: Bench) -> None:
    bench.stub.may_continue.clear()
    for seq_id in (1, 2, 3):
        bench.compiler.request(seq_id, "text")
    bench.stub.may_continue.set()
    waited = [bench.get() for _ in range(3)]
    bench.compiler.request(4, "text")
    later = bench.get()
    assert [done.seq_id for done in (*waited, later)] == [1, 2, 3, 4]
    states = [done.state for done in (*waited, later)]
    assert all(state is not None for state in states)
    assert len({id(state) for state in states}) == 4
    assert bench.stub.sources == ["text"]


def test_a_wrong_text_is_remembered_too(bench: Bench) -> None:
    for seq_id in (1, 2):
        bench.compiler.request(seq_id, "wrong")
        assert bench.get() == GrammarDone(seq_id, None, "it is wrong")
    assert bench.stub.sources == ["wrong"]


@pytest.mark.parametrize("source", ["broken", "panic"])
def test_a_fault_of_ours_is_reported_and_not_remembered(
    bench: Bench, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    for seq_id in (1, 2):
        bench.compiler.request(seq_id, source)
        assert bench.get() == GrammarDone(seq_id, None, "it could not be compiled")
    assert bench.stub.sources == [source, source]
    assert "a fault of ours" in caplog.text


def test_the_least_recently_used_text_goes_first(bench: Bench) -> None:
    texts = [f"text {i}" for i in range(MAX_CACHED)]
    for text in [*texts, texts[0], "one more", texts[0], texts[1]]:
        bench.compiler.request(1, text)
        bench.get()
    assert bench.stub.sources == [*texts, "one more", texts[1]]


def test_a_text_too_long_is_refused_without_compiling(bench: Bench) -> None:
    bench.compiler.request(1, "x" * (MAX_GRAMMAR_BYTES + 1))
    done = bench.get()
    assert done.state is None
    assert done.error is not None
    assert str(MAX_GRAMMAR_BYTES) in done.error
    assert bench.stub.sources == []


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


def test_the_checking_process_ends_with_the_core(model_dir: Path) -> None:
    command = [sys.executable, "-m", "engine.sampling.grammar_check"]
    options = ["--model-dir", str(model_dir), "--vocab-size", str(VOCAB_SIZE), "--limit-s", "0.5"]
    with subprocess.Popen(command + options, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert read_text(process.stdout) == ""
        # Ctrl-C is for the front.
        os.kill(process.pid, signal.SIGINT)
        process.stdin.close()
        assert process.wait(10) == 0
