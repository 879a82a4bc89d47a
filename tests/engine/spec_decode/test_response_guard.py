"""Responses use draft tokens or not, whichever is over sooner, as a few made the other way show."""

from __future__ import annotations

import random

from engine.protocol import Add, SamplingParams
from engine.spec_decode.response_guard import ResponseGuard
from engine.step.sequence import Sequence

LONG = 64
"""Tokens behind which any response is open."""


class Machine:
    """States responses; a token takes so long with draft tokens and without."""

    def __init__(self, with_drafts_s: float, plain_s: float, *, is_even: bool = False) -> None:
        """`is_even`: it is never held up."""
        self.now = 0.0
        self.is_even = is_even
        self.with_drafts_s, self.plain_s = with_drafts_s, plain_s
        self.guard = ResponseGuard(lambda: self.now)
        self.rng = random.Random(3)
        self.num_generated = 0

    def prompt(self, num_tokens: int = 20) -> Sequence:
        """A response that is yet to begin."""
        self.num_generated += 1
        params = SamplingParams(max_tokens=100, temperature=0.0)
        add = Add(seq_id=self.num_generated, prompt_token_ids=[1] * num_tokens, params=params)
        return Sequence.from_add(add, arrival_index=self.num_generated, received_at=self.now)

    def begin(self, seqs: list[Sequence], ago_s: float = 0.0) -> list[bool]:
        """Generate the first token of each; return which of them use draft tokens."""
        ways = [self.guard.is_open(seq, len(seqs)) for seq in seqs]
        for seq in seqs:
            self.guard.begin(seq, ago_s, num_generated=1)
            seq.token_ids.append(7)
        return ways

    def answer(self, num_seqs: int = 1, num_tokens: int = 6, prompt: int = 20) -> list[bool]:
        """As many at once as there are sequences; which of them used draft tokens."""
        seqs = [self.prompt(prompt) for _ in range(num_seqs)]
        ways = self.begin(seqs)
        token_s = self.with_drafts_s if any(ways) else self.plain_s
        self.now += num_tokens * token_s * (1.0 if self.is_even else self.rng.uniform(0.8, 1.25))
        for seq in seqs:
            seq.token_ids.extend([8] * num_tokens)
            self.guard.end(seq)
        return ways

    def answer_step_by_step(self, num_tokens: int) -> bool:
        """Generate a response alone, a token a step; return whether it used draft tokens from its beginning."""
        seq = self.prompt()
        (way,) = self.begin([seq])
        for _ in range(num_tokens):
            token_s = self.with_drafts_s if self.guard.is_open(seq, 1) else self.plain_s
            self.now += token_s * self.rng.uniform(0.8, 1.25)
            seq.token_ids.append(8)
        self.guard.end(seq)
        return way


def share_with_drafts(machine: Machine, num_answers: int, num_seqs: int = 1) -> float:
    ways = [way for _ in range(num_answers // num_seqs) for way in machine.answer(num_seqs)]
    return sum(ways) / len(ways)


def test_drafts_that_make_responses_slower_are_left_alone_but_for_a_few_trials() -> None:
    machine = Machine(with_drafts_s=1.2, plain_s=1.0)
    share_with_drafts(machine, 40)
    assert share_with_drafts(machine, 400) < 0.08


def test_drafts_that_make_responses_quicker_are_used_but_for_a_few_trials() -> None:
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


def test_rows_that_share_steps_are_generated_the_same_way() -> None:
    machine = Machine(with_drafts_s=1.2, plain_s=1.0)
    for _ in range(200):
        assert len(set(machine.answer(num_seqs=8))) == 1


def test_each_kind_of_responses_has_a_verdict_of_its_own() -> None:
    machine = Machine(with_drafts_s=1.2, plain_s=1.0)
    share_with_drafts(machine, 100)
    machine.with_drafts_s = 0.5
    assert all(machine.answer(prompt=400) == [True] for _ in range(4)), "long prompts are another kind"


def test_responses_with_predictions_have_a_verdict_of_their_own() -> None:
    guard = ResponseGuard(lambda: 0.0)
    kinds = set()
    for predicted, temperature in (([], 0.0), ([], 1.0), ([5, 6], 0.0), ([5, 6], 1.0)):
        params = SamplingParams(max_tokens=9, temperature=temperature)
        add = Add(seq_id=1, prompt_token_ids=[1] * 20, params=params, prediction_token_ids=predicted)
        seq = Sequence.from_add(add, arrival_index=0, received_at=0.0)
        guard.is_open(seq, 1)
        kinds.add(guard._responses[seq].kind)
    found = {(kind.has_prediction, kind.is_drawn) for kind in kinds}
    assert found == {(False, False), (True, False), (True, True)}


def test_a_response_that_gets_company_reports_nothing() -> None:
    machine = Machine(with_drafts_s=1.0, plain_s=1.0, is_even=True)
    for _ in range(40):
        alone = machine.prompt()
        (is_open,) = machine.begin([alone])
        machine.now += 50.0 if is_open else 1.0
        machine.guard.is_open(alone, 2)
        alone.token_ids.append(8)
        machine.guard.end(alone)
    assert any(way for _ in range(8) for way in machine.answer()), "the long ones were said with others"


def test_long_responses_report_what_they_took_until_they_were_open() -> None:
    machine = Machine(with_drafts_s=0.6, plain_s=1.0)
    ways = [machine.answer_step_by_step(2 * LONG) for _ in range(400)]
    assert sum(ways[40:]) / 360 > 0.92


def test_a_response_that_goes_on_for_long_is_open_in_the_end_and_then_reports_nothing() -> None:
    machine = Machine(with_drafts_s=1.2, plain_s=1.0, is_even=True)
    while machine.answer()[0]:
        pass
    seq = machine.prompt()
    assert machine.begin([seq]) == [False]
    seq.token_ids.extend([8] * (LONG - 2))
    assert not machine.guard.is_open(seq, 1)
    machine.now += LONG * machine.plain_s
    seq.token_ids.append(8)
    assert machine.guard.is_open(seq, 1)
    machine.now += 1000.0
    machine.guard.end(seq)
    assert not any(way for _ in range(2) for way in machine.answer())


def test_what_steps_behind_the_first_token_took_belongs_to_the_response() -> None:
    machine = Machine(with_drafts_s=0.0, plain_s=0.0)
    for _ in range(100):  # all that takes time is over when the first token is given, and drafts save half of it
        seq = machine.prompt()
        took_s = 2.0 if machine.guard.is_open(seq, 1) else 4.0
        machine.now += took_s
        machine.begin([seq], ago_s=took_s)
        seq.token_ids.extend([8, 8])
        machine.guard.end(seq)
    assert sum(machine.guard.is_open(machine.prompt(), 1) for _ in range(100)) > 90


def test_a_response_of_one_token_and_one_that_never_began_report_nothing() -> None:
    machine = Machine(with_drafts_s=1.0, plain_s=1.0)
    unsaid, short = machine.prompt(), machine.prompt()
    machine.guard.is_open(unsaid, 1)
    machine.begin([short])
    machine.guard.end(unsaid)
    machine.guard.end(short)
    machine.guard.end(machine.prompt())  # of which nothing is known
