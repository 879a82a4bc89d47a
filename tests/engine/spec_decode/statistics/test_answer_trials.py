"""Answers are said with drafts or without, whichever has them over sooner, found out by a few said the other way."""

from __future__ import annotations

import random

import pytest

from engine.protocol import Add, SamplingParams
from engine.spec_decode.statistics.answer_trials import AnswerTrials
from engine.step.sequence import Sequence


class Machine:
    """Says answers; a token takes so long with drafts and without."""

    def __init__(self, with_drafts_s: float, plain_s: float, *, is_even: bool = False) -> None:
        """`is_even`: it is never held up."""
        self.now = 0.0
        self.is_even = is_even
        self.with_drafts_s, self.plain_s = with_drafts_s, plain_s
        self.trials = AnswerTrials(lambda: self.now)
        self.rng = random.Random(3)
        self.num_said = 0

    def begun(self) -> Sequence:
        """An answer of which one token was said."""
        self.num_said += 1
        params = SamplingParams(max_tokens=100, temperature=0.0)
        add = Add(seq_id=self.num_said, prompt_token_ids=[1] * 20, params=params)
        seq = Sequence.from_add(add, arrival_index=self.num_said, received_at=self.now)
        seq.token_ids.append(7)
        return seq

    def answer(self, num_rows: int = 1, num_tokens: int = 6, *, is_short: bool = False) -> list[bool]:
        """As many at once as there are rows; which of them were said with drafts."""
        seqs = [self.begun() for _ in range(num_rows)]
        self.trials.begin(seqs, lambda seq: is_short, num_rows)
        ways = [self.trials.is_open(seq) for seq in seqs]
        token_s = self.with_drafts_s if any(ways) else self.plain_s
        self.now += num_tokens * token_s * (1.0 if self.is_even else self.rng.uniform(0.8, 1.25))
        for seq in seqs:
            seq.token_ids.extend([8] * num_tokens)
            self.trials.end(seq)
        return ways


def is_long(seq: Sequence) -> bool | None:
    """Of no answer it is known that it is short."""
    return False if seq.num_output_tokens else None


def share_with_drafts(machine: Machine, num_answers: int, num_rows: int = 1) -> float:
    ways = [way for _ in range(num_answers // num_rows) for way in machine.answer(num_rows)]
    return sum(ways) / len(ways)


def test_drafts_that_make_answers_slower_are_left_alone_but_for_a_few_trials() -> None:
    machine = Machine(with_drafts_s=1.2, plain_s=1.0)
    share_with_drafts(machine, 40)
    assert share_with_drafts(machine, 400) < 0.08


def test_drafts_that_make_answers_quicker_are_used_but_for_a_few_trials() -> None:
    machine = Machine(with_drafts_s=0.6, plain_s=1.0)
    share_with_drafts(machine, 40)
    assert share_with_drafts(machine, 400) > 0.92


def test_what_saves_next_to_nothing_is_not_worth_it() -> None:
    machine = Machine(with_drafts_s=0.98, plain_s=1.0, is_even=True)
    share_with_drafts(machine, 100)
    assert share_with_drafts(machine, 400) < 0.1


def test_a_verdict_is_changed_when_the_other_way_becomes_quicker() -> None:
    machine = Machine(with_drafts_s=1.2, plain_s=1.0)
    share_with_drafts(machine, 200)
    machine.with_drafts_s = 0.5
    share_with_drafts(machine, 600)
    assert share_with_drafts(machine, 400) > 0.8


def test_rows_that_share_steps_are_said_the_same_way() -> None:
    machine = Machine(with_drafts_s=1.2, plain_s=1.0)
    for _ in range(200):
        assert len(set(machine.answer(num_rows=8))) == 1


def test_each_sort_of_answers_has_a_verdict_of_its_own() -> None:
    machine = Machine(with_drafts_s=1.2, plain_s=1.0)
    share_with_drafts(machine, 100)
    machine.with_drafts_s = 0.5
    assert all(machine.answer(num_tokens=2, is_short=True) == [True] for _ in range(4)), "short ones are another sort"


def test_an_answer_that_gets_company_tells_nothing() -> None:
    machine = Machine(with_drafts_s=1.0, plain_s=1.0, is_even=True)
    for _ in range(40):
        alone = machine.begun()
        machine.trials.begin([alone], is_long, 1)
        machine.now += 50.0 if machine.trials.is_open(alone) else 1.0
        machine.trials.begin([alone, machine.begun()], is_long, 2)
        alone.token_ids.append(8)
        machine.trials.end(alone)
    ways = [way for _ in range(8) for way in machine.answer()]
    assert any(ways), "the long ones were said with others"


@pytest.mark.parametrize(("is_short", "num_tokens"), [(True, 8), (False, 64)])
def test_an_answer_that_goes_on_for_long_is_open_in_the_end_and_then_tells_nothing(
    is_short: bool, num_tokens: int
) -> None:
    machine = Machine(with_drafts_s=1.2, plain_s=1.0, is_even=True)
    while machine.answer(is_short=is_short)[0]:
        pass
    seq = machine.begun()
    machine.trials.begin([seq], lambda seq: is_short, 1)
    assert not machine.trials.is_open(seq)
    assert machine.trials.num_closed([seq]) == num_tokens
    seq.token_ids.extend([8] * (num_tokens - 1))
    assert not machine.trials.is_open(seq)
    seq.token_ids.append(8)
    assert machine.trials.is_open(seq)
    machine.now += 1000.0
    machine.trials.end(seq)
    assert not any(way for _ in range(2) for way in machine.answer(is_short=is_short))


def test_of_short_answers_drafts_have_to_save_more() -> None:
    for with_drafts_s, is_used in ((0.93, False), (0.8, True)):
        machine = Machine(with_drafts_s=with_drafts_s, plain_s=1.0, is_even=True)
        for _ in range(100):
            machine.answer(is_short=True)
        ways = [machine.answer(is_short=True)[0] for _ in range(200)]
        assert (sum(ways) > 100) is is_used


def test_where_no_sort_of_answers_is_said_with_drafts_that_is_foreseen() -> None:
    machine = Machine(with_drafts_s=2.0, plain_s=1.0)
    unsaid = machine.begun()
    assert machine.trials.may_open([unsaid]), "nothing is known yet"
    for _ in range(60):
        for is_short in (False, True):
            machine.answer(is_short=is_short)
    assert not machine.trials.may_open([unsaid])
    assert machine.trials.may_open([unsaid, machine.begun()]), "in company nothing is known yet"


def test_an_answer_is_said_one_way_to_its_end_and_until_it_begins_anything_is_open() -> None:
    machine = Machine(with_drafts_s=1.0, plain_s=1.0)
    for _ in range(6):
        machine.answer()
    unsaid = machine.begun()
    del unsaid.token_ids[-1]
    seq = machine.begun()
    for _ in range(3):
        machine.trials.begin([unsaid, seq], is_long, 2)
        assert machine.trials.is_open(unsaid)
        assert machine.trials.is_open(seq)
    machine.trials.end(unsaid)  # of which nothing is known


def test_an_answer_that_is_shut_opens_when_it_gets_longer_than_short_ones_and_its_time_tells_nothing() -> None:
    machine = Machine(with_drafts_s=0.5, plain_s=1.0)
    seq = machine.begun()
    seq.token_ids.pop()
    machine.trials.shut(seq)
    seq.token_ids.append(7)
    machine.trials.begin([seq], is_long, 1)
    num_closed = machine.trials.num_closed([seq])
    assert not machine.trials.is_open(seq)
    seq.token_ids.extend([8] * num_closed)
    assert machine.trials.is_open(seq)
    assert 1 < num_closed < 16
    machine.now += 1000.0
    machine.trials.end(seq)
    share_with_drafts(machine, 40)
    assert share_with_drafts(machine, 400) > 0.92
