"""Grammars are compiled once each, beside the loop; what would take too long takes down a process that may die."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import cast

import pytest

from engine.sampling.grammar import MAX_GRAMMAR_BYTES, GrammarError, GrammarState, UncheckedGrammarError
from engine.sampling.grammar_compiler import MAX_CACHED, RECHECK_S, GrammarCompiler, GrammarDone


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
        if source == "slow":
            raise UncheckedGrammarError("it takes too long")
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
        self.now = 0.0
        self.compiler = GrammarCompiler(self.stub, self.results.put, clock=lambda: self.now)
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


def test_a_grammar_whose_check_did_not_end_is_checked_again_after_a_while() -> None:
    bench = Bench()
    checked = []
    for bench.now in (0.0, RECHECK_S - 1.0, RECHECK_S, RECHECK_S + 1.0):
        bench.compiler.request(1, "slow")
        assert bench.get().error == "it takes too long"
        checked.append(len(bench.stub.sources))
    assert checked == [1, 1, 2, 2]


def test_a_wrong_grammar_stays_wrong() -> None:
    bench = Bench()
    for bench.now in (0.0, 10 * RECHECK_S):
        bench.compiler.request(1, "wrong")
        assert bench.get().error == "it is wrong"
    assert bench.stub.sources == ["wrong"]
