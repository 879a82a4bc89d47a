"""Sequences whose output follows a grammar: they wait for it outside every queue, and it states where they end."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import cast

import msgspec
import pytest

from engine.protocol import Add
from engine.sampling.grammar import GrammarError, GrammarState
from engine.sampling.grammar_compiler import GrammarDone
from engine.scheduler.scheduler import Scheduler
from tests.engine.core.fakes import FakeCore, greedy, make_add


@dataclass
class FakeGrammar:
    """Ends, or fails, behind so many tokens."""

    ends_behind: int | None = None
    fails_behind: int | None = None
    accepted: list[int] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        return len(self.accepted) == self.ends_behind

    @property
    def failure(self) -> str | None:
        return "it became too complex" if len(self.accepted) == self.fails_behind else None

    def accept(self, token_ids: SequenceOf[int]) -> None:
        self.accepted += token_ids
        if self.failure is not None:
            raise GrammarError(self.failure)


@dataclass
class GrammarCore(FakeCore):
    """A core whose grammars are compiled when a test reports it."""

    requests: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scheduler = Scheduler(
            self.limits,
            self.blocks,
            forecast=self.forecast,
            step_time=self.step_time,
            tally=self.tally,
            drafter=self.drafter,
            grammars=self,
        )

    def request(self, seq_id: int, source: str) -> None:
        self.requests.append((seq_id, source))

    def compiled(self, seq_id: int, grammar: FakeGrammar) -> FakeGrammar:
        self.scheduler.grammar_done(GrammarDone(seq_id, cast(GrammarState, grammar)), self.clock())
        return grammar

    def refused(self, seq_id: int) -> None:
        self.scheduler.grammar_done(GrammarDone(seq_id, None, "it is wrong"), self.clock())
        self.collect()


def with_grammar(add: Add) -> Add:
    return msgspec.structs.replace(add, grammar="text")


@pytest.fixture
def core() -> GrammarCore:
    return GrammarCore()


def test_a_sequence_waits_for_its_grammar_while_others_run(core: GrammarCore) -> None:
    core.add(with_grammar(make_add(1, [1, 2, 3])))
    assert core.requests == [(1, "text")]
    assert not core.scheduler.has_work
    assert core.scheduler.num_waiting == 1
    core.scheduler.check_integrity()
    core.add(make_add(2, [4, 5, 6]))
    assert [chunk.seq.seq_id for chunk in core.step().chunks] == [2]
    grammar = core.compiled(1, FakeGrammar())
    assert core.scheduler.has_work
    core.run()
    assert core.texts[1] == greedy([1, 2, 3], 4) == grammar.accepted
    assert core.ends[1].finish_reason == "length"


def test_an_answer_that_nothing_can_follow_ends_at_once(core: GrammarCore) -> None:
    core.add(with_grammar(make_add(1, [1, 2, 3], max_tokens=20, min_tokens=10)))
    core.compiled(1, FakeGrammar(ends_behind=3))
    core.run()
    assert core.texts[1] == greedy([1, 2, 3], 3)
    assert core.ends[1].finish_reason == "stop"


def test_a_stop_token_ends_an_answer_whatever_min_tokens_states(core: GrammarCore) -> None:
    answer = greedy([1, 2, 3], 5)
    core.add(with_grammar(make_add(1, [1, 2, 3], max_tokens=20, min_tokens=10, stop_token_ids=(answer[4],))))
    grammar = core.compiled(1, FakeGrammar())
    core.run()
    assert core.texts[1] == answer
    assert grammar.accepted == answer[:4]
    assert core.ends[1].finish_reason == "stop"


def test_a_wrong_grammar_ends_its_sequence_alone(core: GrammarCore) -> None:
    core.add(with_grammar(make_add(1, [1, 2, 3])))
    core.add(make_add(2, [4, 5, 6]))
    core.refused(1)
    end = core.ends[1]
    assert (end.finish_reason, end.error, end.fault) == ("error", "it is wrong", "grammar")
    core.run()
    assert core.ends[2].finish_reason == "length"


def test_a_grammar_that_fails_on_the_way_ends_its_sequence_alone(core: GrammarCore) -> None:
    core.add(with_grammar(make_add(1, [1, 2, 3], max_tokens=9)))
    core.add(make_add(2, [4, 5, 6], max_tokens=9))
    core.compiled(1, FakeGrammar(fails_behind=3))
    core.run()
    assert (core.ends[1].finish_reason, core.ends[1].fault) == ("error", "grammar")
    assert core.ends[1].error == "it became too complex"
    assert core.ends[2].finish_reason == "length"


def test_an_abort_while_the_grammar_is_compiled_is_named_and_what_comes_later_ignored(core: GrammarCore) -> None:
    core.add(with_grammar(make_add(1, [1, 2, 3])))
    core.abort(1)
    core.collect()
    assert core.ends[1].abort_state == "grammar"
    ((seq_id, state, _),) = core.scheduler.take_freed()
    assert (seq_id, state) == (1, "grammar")
    core.compiled(1, FakeGrammar())
    core.refused(1)
    assert not core.scheduler.has_work
    assert core.scheduler.num_waiting == 0
    core.scheduler.check_integrity()


def test_a_deadline_passes_while_the_grammar_is_compiled(core: GrammarCore) -> None:
    core.add(with_grammar(make_add(1, [1, 2, 3], deadline_s=1.0)))
    core.clock.advance(2.0)
    core.step()
    assert core.ends[1].abort_state == "grammar"


def test_a_preempted_sequence_keeps_its_place_in_the_grammar() -> None:
    core = GrammarCore(num_blocks=10)
    grammars = {}
    for seq_id in range(3):
        core.add(with_grammar(make_add(seq_id, [seq_id], max_tokens=16)))
        grammars[seq_id] = core.compiled(seq_id, FakeGrammar())
    core.run()
    assert core.tally.preemptions > 0
    for seq_id in range(3):
        assert grammars[seq_id].accepted == core.texts[seq_id] == greedy([seq_id], 16)


def test_waiting_for_grammars_counts_against_the_limit_of_the_queue() -> None:
    core = GrammarCore(max_waiting=2)
    for seq_id in (1, 2, 3):
        core.add(with_grammar(make_add(seq_id, [1, 2, 3])))
    core.collect()
    assert list(core.ends) == [3]


def test_a_core_without_a_compiler_reports_it() -> None:
    core = FakeCore()
    core.add(with_grammar(make_add(1, [1, 2, 3])))
    core.collect()
    assert (core.ends[1].finish_reason, core.ends[1].fault) == ("error", "grammar")


def resumed(add: Add, token_ids: list[int]) -> Add:
    return msgspec.structs.replace(add, output_token_ids=token_ids)


def test_the_grammar_of_a_resumed_answer_stands_behind_its_tokens(core: GrammarCore) -> None:
    answer = greedy([1, 2, 3], 4)
    core.add(resumed(with_grammar(make_add(1, [1, 2, 3])), answer[:2]))
    grammar = core.compiled(1, FakeGrammar())
    core.run()
    assert core.texts[1] == answer[2:]
    assert grammar.accepted == answer


def test_tokens_that_do_not_fit_the_grammar_end_their_sequence_alone(core: GrammarCore) -> None:
    core.add(resumed(with_grammar(make_add(1, [1, 2, 3])), [9]))
    core.add(make_add(2, [4, 5, 6]))
    core.compiled(1, FakeGrammar(fails_behind=1))
    core.run()
    assert (core.ends[1].finish_reason, core.ends[1].fault) == ("error", "grammar")
    assert core.ends[2].finish_reason == "length"
    core.scheduler.check_integrity()
