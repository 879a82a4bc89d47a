"""The controller drafts where draft tokens are right and cheap, and does not where they are not, by what it sees."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

import numpy as np
import pytest

from engine.cpu.multi_step.argmax import CONFIDENCE_CLASSES
from engine.forecast.step_cost import StepCosts
from engine.models.multi_step import DraftTables, MultiStepOrder, MultiStepReport, StepTaken
from engine.models.prediction_heads import HeadPredictions
from engine.protocol import Add, SamplingParams
from engine.spec_decode.controller import Proposers, SpeculationController
from engine.spec_decode.multi_step import MultiStepPlanner
from engine.spec_decode.proposers.acceptance_stats import AcceptanceStats
from engine.spec_decode.proposers.draft_model import DraftModelProposer
from engine.spec_decode.proposers.ngram import NgramProposer
from engine.step.drafting import DraftRequest, Proposal
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.sequence import INT64, Sequence
from engine.step.step_output import SequenceResult, StepOutput

REPEATED = [5, 6, 7, 8, 9, 10, 11]


def sequence(token_ids: list[int]) -> Sequence:
    params = SamplingParams(max_tokens=10_000, temperature=0.0)
    add = Add(seq_id=1, prompt_token_ids=token_ids, params=params)
    return Sequence.from_add(add, arrival_index=0, received_at=0.0)


def costs(fixed: float, each: float) -> StepCosts:
    found = StepCosts()
    found.observe_plain(1, 1.0)
    for num_drafts in (1, 4, 8):
        found.observe_verification(1, num_drafts, 1.0 + fixed + each * num_drafts)
    return found


class Clock:
    """Goes on by as much with every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


class Heads:
    """Three heads, sure of the numbers that follow the newest token, or of others."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.num_calls = 0

    def predict(self, newest: int) -> HeadPredictions:
        """What comes behind a token."""
        self.num_calls += 1
        tokens = np.array([[newest + self.offset + head for head in range(3)]])
        return HeadPredictions(tokens, np.array([[CONFIDENCE_CLASSES * head + 5 for head in range(3)]]))


@dataclass
class World:
    """A sequence that states what it is given to, on a machine of known speed."""

    controller: SpeculationController
    clock: Clock
    fixed: float
    each: float
    heads: Heads | None = None
    seq: Sequence = field(default_factory=lambda: sequence([1, 2, 3]))
    seconds: float = 0.0
    unseen_s: float = 0.0
    """What a step with draft tokens takes more than the step itself shows."""
    num_drafted: int = 0

    def answer(self, text: list[int]) -> None:
        """A whole answer of its own."""
        self.seq = sequence([1, 2, 3])
        self.controller.reach([self.seq], is_decode=False, may_follow=False)
        proposal = self.controller.propose([DraftRequest(self.seq, 0)], 0)
        self.clock.now += 3.0
        self._observe(proposal, ScheduledChunk(self.seq, 0, 3, samples=True), text[:1], 3.0)
        self.emit(text[1:])
        self.controller.ended(self.seq)
        self.controller.rest()

    def emit(self, text: list[int]) -> None:
        """Steps until the text is stated."""
        num_emitted = 0
        while num_emitted < len(text):
            self.controller.reach([self.seq], is_decode=True, may_follow=False)
            proposal = self.controller.propose([DraftRequest(self.seq, 6)], 64)
            (drafts,) = proposal.draft_token_ids
            num_right = 0
            while (
                num_right < min(len(drafts), len(text) - num_emitted - 1)
                and drafts[num_right] == text[num_emitted + num_right]
            ):
                num_right += 1
            took = 1.0 + (self.fixed + self.each * len(drafts) if drafts else 0.0)
            self.clock.now += took + (self.unseen_s if drafts else 0.0)
            tokens = text[num_emitted : num_emitted + num_right + 1]
            chunk = ScheduledChunk(self.seq, self.seq.num_tokens - 1, 1, samples=True, draft_token_ids=drafts)
            self._observe(proposal, chunk, tokens, took)
            num_emitted += len(tokens)
            self.seconds += took
            self.num_drafted += len(drafts)

    def _observe(self, proposal: Proposal, chunk: ScheduledChunk, tokens: list[int], took: float) -> None:
        predictions = None
        if proposal.predicts and self.heads is not None:
            predictions = self.heads.predict(tokens[-1])
        scheduled = SchedulerOutput([chunk], proposal.predicts, proposal.multi_step)
        self.controller.observe(scheduled, StepOutput([SequenceResult(tokens)], predictions), took)
        self.seq.token_ids.extend(array(INT64, tokens))


def world(
    fixed: float = 0.2, each: float = 0.05, *, believed: tuple[float, float] | None = None, offset: int | None = None
) -> World:
    """`offset`: of heads; None: there are none."""
    clock, stats = Clock(), AcceptanceStats()
    proposers = Proposers(NgramProposer(stats), has_heads=offset is not None)
    controller = SpeculationController(
        proposers, stats, costs(*(believed or (fixed, each))), num_speculative_tokens=6, clock=clock
    )
    return World(controller, clock, fixed, each, None if offset is None else Heads(offset))


def test_repeated_text_is_generated_much_faster() -> None:
    found = world()
    found.emit(REPEATED * 60)
    assert found.seconds < 0.5 * 420


def test_text_that_never_repeats_costs_nothing() -> None:
    found = world()
    found.emit(list(range(100, 700)))
    assert found.seconds == 600.0


def test_text_that_repeats_at_random_costs_little() -> None:
    rng = random.Random(5)
    found = world()
    found.emit([rng.randrange(4) for _ in range(2000)])
    assert found.seconds < 1.03 * 2000


def test_a_start_on_a_busy_machine_does_not_keep_drafts_away_for_good() -> None:
    found = world(believed=(9.0, 1.0))
    text = REPEATED * 60
    found.emit(text * 6)
    assert found.num_drafted > 0
    before = found.seconds
    found.emit(text)
    assert found.seconds - before < 0.5 * len(text)


def test_steps_that_cost_more_than_believed_are_found_out() -> None:
    found = world(fixed=6.0, believed=(0.1, 0.01))
    found.emit(REPEATED * 400)
    assert found.seconds < 1.03 * 2800


def test_speculation_starts_when_a_text_begins_to_repeat() -> None:
    found = world()
    found.emit(list(range(100, 400)))
    assert found.num_drafted == 0
    found.emit(REPEATED * 40)
    assert found.num_drafted > 100


def test_while_drafts_pay_a_plain_step_shows_now_and_then_what_one_takes() -> None:
    found = world()
    found.emit(REPEATED * 30)
    found.controller._costs.observe_plain = None  # type: ignore[assignment, method-assign]
    with pytest.raises(TypeError):
        found.emit(REPEATED * 120)


def test_what_costs_more_than_any_step_shows_is_given_up_by_whole_responses() -> None:
    found = world()
    found.unseen_s = 4.0
    for _ in range(100):
        found.answer([5, 6, 7, 8, 9, 10])
    before = found.num_drafted
    for _ in range(100):
        found.answer([5, 6, 7, 8, 9, 10])
    assert found.num_drafted - before < 0.1 * 500


def test_responses_that_drafts_make_quicker_go_on_being_drafted() -> None:
    found = world()
    for _ in range(100):
        found.answer(list(range(5, 25)))
    before = found.seconds
    for _ in range(100):
        found.answer(list(range(5, 25)))
    assert found.seconds - before < 0.5 * 2000


def test_an_answer_is_remembered_when_nobody_waits_for_a_step() -> None:
    found = world()
    text = list(range(200, 220))
    ended = sequence([1, 2, 3])
    ended.token_ids.extend(array(INT64, text))
    found.controller.ended(ended)
    found.seq = sequence([1, 2, 3])
    found.emit(text)
    assert found.num_drafted == 0
    found.controller.rest()
    found.seq = sequence([1, 2, 3])
    found.emit(text)
    assert found.num_drafted > 10


def test_where_no_step_is_ever_waited_for_answers_are_remembered_all_the_same() -> None:
    found = world()
    text = list(range(200, 220))
    for _ in range(20):
        ended = sequence([1, 2, 3])
        ended.token_ids.extend(array(INT64, text))
        found.controller.ended(ended)
    found.seq = sequence([1, 2, 3])
    found.emit(text)
    assert found.num_drafted > 10


def test_heads_that_are_right_make_a_text_faster_that_never_repeats() -> None:
    found = world(0.1, 0.1, offset=1)
    found.emit(list(range(100, 700)))
    assert found.seconds < 0.45 * 600


def test_heads_that_are_wrong_soon_run_no_more() -> None:
    found = world(0.1, 0.1, offset=2)
    found.emit(list(range(100, 2100)))
    assert found.seconds < 1.02 * 2000
    assert found.heads is not None
    assert found.heads.num_calls < 0.05 * 2000


def test_heads_run_again_when_they_might_have_become_right() -> None:
    found = world(0.1, 0.1, offset=2)
    found.emit(list(range(100, 1100)))
    assert found.heads is not None
    found.heads.offset = 1
    before = found.num_drafted
    found.emit(list(range(2000, 12000)))
    assert found.num_drafted - before > 1000


def test_heads_do_not_run_where_even_right_drafts_would_not_pay() -> None:
    found = world(0.3, 0.9, offset=1)
    found.emit(list(range(100, 6600)))
    assert found.heads is not None
    assert found.heads.num_calls < 0.03 * 6500
    assert found.seconds < 1.02 * 6500


def test_what_heads_and_text_both_know_comes_from_whoever_is_right_more_often() -> None:
    found = world(0.1, 0.1, offset=2)
    found.emit(REPEATED * 60)
    assert found.seconds < 0.5 * 420


def test_of_rows_that_the_last_step_did_not_have_heads_stated_nothing() -> None:
    found = world(0.1, 0.1, offset=1)
    found.emit(list(range(100, 120)))
    other = sequence([1, 2, 3])
    assert found.controller._predictions_of([other]) is None
    predictions = found.controller._predictions_of([other, found.seq])
    assert predictions is not None
    assert predictions.tokens[:, 0].tolist() == [-1, 120]


class Rules:
    """A grammar that forces some tokens, and allows the first so many of those that are drafted at once."""

    def __init__(self, num_allowed: int, forced: SequenceOf[int] = ()) -> None:
        self.num_allowed = num_allowed
        self.forced = list(forced)

    def forced_tokens(self) -> list[int]:
        return self.forced

    def validate(self, token_ids: SequenceOf[int]) -> int:
        return min(self.num_allowed, len(token_ids))


def test_heads_state_what_comes_under_a_grammar_too() -> None:
    found = world(0.1, 0.1, offset=1)
    found.seq.grammar = Rules(9)  # type: ignore[assignment]
    found.emit(list(range(100, 700)))
    assert found.seconds < 0.45 * 600


def test_what_a_grammar_does_not_allow_is_no_draft() -> None:
    found = world(0.1, 0.1, offset=1)
    found.seq.grammar = Rules(0)  # type: ignore[assignment]
    found.emit(list(range(100, 700)))
    assert found.heads is not None
    assert found.heads.num_calls > 0
    assert found.num_drafted == 0


def test_the_only_text_that_a_grammar_leaves_is_drafted_as_far_as_there_is_room() -> None:
    found = world()
    found.seq.grammar = Rules(9, forced=range(40, 60))  # type: ignore[assignment]
    found.controller.reach([found.seq], is_decode=True, may_follow=False)
    proposal = found.controller.propose([DraftRequest(found.seq, 4)], 64)
    assert proposal.draft_token_ids == [(40, 41, 42, 43)]


def test_beside_prompts_nothing_is_drafted() -> None:
    found = world(0.1, 0.1, offset=1)
    assert found.controller.reach([found.seq], is_decode=False, may_follow=True) == 0
    assert found.controller.propose([DraftRequest(found.seq, 0)], 0).draft_token_ids == [()]


class FollowingModel:
    """Computes steps behind a step, by itself."""

    max_num_seqs = 2

    def begin(self, tables: DraftTables) -> None:
        """Nothing."""

    def order(self, order: MultiStepOrder) -> None:
        """Never: that is the runner's."""
        raise AssertionError

    def report(self) -> MultiStepReport | None:
        """Nothing was computed."""
        return None


def following() -> SpeculationController:
    """A controller on a machine whose steps take a millisecond and may follow one another."""
    stats, found = AcceptanceStats(), (StepCosts(), StepCosts())
    for some in found:
        some.observe(1, 0, 1e-3)
        some.observe(1, 4, 1.1e-3)
    ngram = NgramProposer(stats)
    proposers = Proposers(ngram, True, MultiStepPlanner(FollowingModel(), ngram, stats, found[1]))
    return SpeculationController(proposers, stats, found[0], num_speculative_tokens=4, clock=Clock())


def test_steps_follow_prompts_and_decode_steps_and_know_how_far_blocks_reach() -> None:
    controller, seq = following(), sequence([1, 2, 3])
    for is_decode in (False, True):
        assert controller.reach([seq], is_decode=is_decode, may_follow=True) == 48
        order = controller.propose([DraftRequest(seq, 4, max_tokens=40)], 64 if is_decode else 0).multi_step
        assert order is not None
        assert (order.is_speculative, order.ends_at, order.drafts_until) == (True, [40], [40])
    assert controller.reach([seq], is_decode=True, may_follow=False) == 4
    assert controller.propose([DraftRequest(seq, 4, max_tokens=40)], 64).multi_step is None


def test_steps_follow_a_response_without_drafts_too_and_no_proposer_runs_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller, seq = following(), sequence([1, 2, 3])
    monkeypatch.setattr(controller._guard, "is_open", lambda seq, num_seqs: False)
    assert controller.reach([seq], is_decode=True, may_follow=True) == 48
    proposal = controller.propose([DraftRequest(seq, 4, max_tokens=40)], 64)
    assert proposal.multi_step is not None
    assert (proposal.predicts, proposal.multi_step.is_speculative, proposal.multi_step.drafts_until) == (
        False,
        False,
        [0],
    )


def test_what_followed_steps_took_is_separate_from_what_scheduled_ones_take() -> None:
    controller, seq = following(), sequence([1, 2, 3])
    chunks = [ScheduledChunk(seq, 2, 1, samples=True)]
    steps = [StepTaken(9.0, 0), *[StepTaken(2e-3, 0)] * 20]
    for predicts, expected in ((False, 1e-3), (True, 2e-3)):  # a step without proposers takes less
        controller.reach([seq], is_decode=True, may_follow=True)
        output = StepOutput([SequenceResult([5] * 21)], steps=steps)
        controller.observe(SchedulerOutput(chunks, predicts), output, 1.0)
        assert controller._multi_step is not None
        assert controller._multi_step.costs.plain_s(1) == pytest.approx(expected)
    assert controller._costs.plain_s(1) == pytest.approx(1e-3)


class CountingModel:
    """A draft model that states the next numbers, or always the same one."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.num_calls = 0

    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        self.num_calls += 1
        return StepOutput([SequenceResult([chunk.seq.token_ids[-1] + self.step]) for chunk in scheduled.chunks])


def world_with_model(step: int, pass_s: float) -> tuple[World, CountingModel]:
    clock, stats, found, model = Clock(), AcceptanceStats(), costs(0.1, 0.05), CountingModel(step)
    found.observe_drafting(1, 1, 0, pass_s)
    proposer = DraftModelProposer(model, num_blocks=1, block_size=20_000, max_tokens=512, reach=20_000)
    controller = SpeculationController(
        Proposers(NgramProposer(stats), draft_model=proposer), stats, found, num_speculative_tokens=6, clock=clock
    )
    made = World(controller, clock, 0.1, 0.05)
    made.seq.block_table = array(INT64, [0])
    return made, model


def test_a_draft_model_that_is_right_and_cheap_makes_a_text_faster() -> None:
    found, _ = world_with_model(step=1, pass_s=0.02)
    found.emit(list(range(100, 700)))
    assert found.seconds < 0.5 * 600


@pytest.mark.parametrize(("step", "pass_s"), [(2, 0.02), (1, 5.0)], ids=["wrong", "dear"])
def test_a_draft_model_that_does_not_pay_is_hardly_run(step: int, pass_s: float) -> None:
    found, model = world_with_model(step, pass_s)
    found.controller._costs.observe_drafting = lambda *arguments: None  # type: ignore[method-assign]
    found.emit(list(range(100, 2100)))
    assert 0 < model.num_calls < 0.05 * 2000
