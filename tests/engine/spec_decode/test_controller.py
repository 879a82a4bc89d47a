"""The switch turns on where drafts are right and cheap, and off where they are not, by what it sees."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import pytest

from engine.forecast.step_cost import StepCosts
from engine.protocol import Add, SamplingParams
from engine.spec_decode.controller import SpeculationController
from engine.spec_decode.proposers.draft_token import first_by_heads
from engine.spec_decode.proposers.medusa import HeadPredictions
from engine.spec_decode.statistics.allowance import TimeAllowance
from engine.spec_decode.statistics.answer_trials import AnswerTrials
from engine.step.batch import RowResult, ScheduledBatch, ScheduledRow
from engine.step.drafting import DraftRequest
from engine.step.hidden_states import Chosen
from engine.step.sequence import INT64, Sequence


def sequence(token_ids: list[int]) -> Sequence:
    params = SamplingParams(max_tokens=10_000, temperature=0.0)
    add = Add(seq_id=1, prompt_token_ids=token_ids, params=params)
    return Sequence.from_add(add, arrival_index=0, received_at=0.0)


def answer_that_begins_with(token_id: int) -> Sequence:
    seq = sequence([1, 2, 3])
    seq.token_ids.append(token_id)
    return seq


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
        self.each = 0.01

    def __call__(self) -> float:
        self.now += self.each
        return self.now


@dataclass
class World:
    """A sequence that says what it is told to, on a machine of known speed."""

    speculator: SpeculationController
    clock: Clock
    fixed: float
    each: float
    seq: Sequence = field(default_factory=lambda: sequence([1, 2, 3]))
    seconds: float = 0.0
    unseen_s: float = 0.0
    """What a step that was thought about takes more, which nobody's books show."""
    num_drafted: int = 0
    num_thought: int = 0
    """Steps in which drafts were looked for."""

    @property
    def thought_s(self) -> float:
        """What passed between steps."""
        return self.clock.now - self.seconds

    def answer(self, first: int, text: list[int]) -> None:
        """A whole answer of its own."""
        self.seq = answer_that_begins_with(first)
        self.say(text)
        self.speculator.ended(self.seq)

    def say(self, text: list[int]) -> None:
        """Steps until the text is said."""
        said = 0
        while said < len(text):
            drafts: tuple[int, ...] = ()
            num_thought = self.num_thought
            if self.speculator.wants([self.seq]):
                self.num_thought += 1
                (drafts,) = self.speculator.draft([DraftRequest(self.seq, 6)], 64)
            num_right = 0
            while num_right < min(len(drafts), len(text) - said - 1) and drafts[num_right] == text[said + num_right]:
                num_right += 1
            took = 1.0 + (self.fixed + self.each * len(drafts) if drafts else 0.0)
            self.clock.now += took + (self.unseen_s if self.num_thought > num_thought else 0.0)
            row = ScheduledRow(self.seq, self.seq.num_tokens - 1, 1, samples=True, draft_token_ids=drafts)
            tokens = text[said : said + num_right + 1]
            self.speculator.observe(ScheduledBatch([row]), [RowResult(tokens)], took)
            self.seq.token_ids.extend(array(INT64, tokens))
            said += len(tokens)
            self.seconds += took
            self.num_drafted += len(drafts)


def world(fixed: float = 0.2, each: float = 0.05, *, believed: tuple[float, float] | None = None) -> World:
    clock = Clock()
    speculator = SpeculationController(
        costs(*(believed or (fixed, each))),
        num_speculative_tokens=6,
        clock=clock,
        has_lookup=True,
    )
    return World(speculator, clock, fixed, each)


def test_repeated_text_is_said_much_faster() -> None:
    found = world()
    found.say([5, 6, 7, 8, 9, 10, 11] * 60)
    assert found.seconds < 0.5 * 420


def test_text_that_never_repeats_costs_nothing() -> None:
    found = world()
    found.say(list(range(100, 700)))
    assert found.seconds == 600.0


def test_text_that_repeats_by_chance_costs_little() -> None:
    rng = random.Random(5)
    found = world()
    found.say([rng.randrange(4) for _ in range(2000)])
    assert found.seconds < 1.03 * 2000


def test_a_start_on_a_busy_machine_does_not_keep_drafts_away_for_good() -> None:
    found = world(believed=(9.0, 1.0))
    text = [5, 6, 7, 8, 9, 10, 11] * 60
    found.say(text * 6)
    assert found.num_drafted > 0
    before = found.seconds
    found.say(text)
    assert found.seconds - before < 0.5 * len(text)


def test_steps_that_cost_more_than_believed_are_found_out() -> None:
    found = world(fixed=6.0, believed=(0.1, 0.01))
    found.say([5, 6, 7, 8, 9, 10, 11] * 400)
    assert found.seconds < 1.03 * 2800


def test_speculation_starts_when_a_text_begins_to_repeat() -> None:
    found = world()
    found.say(list(range(100, 400)))
    assert found.num_drafted == 0
    found.say([5, 6, 7, 8, 9, 10, 11] * 40)
    assert found.num_drafted > 100


def test_thinking_that_costs_more_than_any_step_shows_is_given_up_by_whole_answers() -> None:
    found = world()
    found.unseen_s = 4.0
    for _ in range(100):
        found.answer(50, [5, 6, 7, 8])
    before = found.num_thought
    for _ in range(100):
        found.answer(50, [5, 6, 7, 8])
    assert found.num_thought - before < 0.1 * 400


def test_answers_that_drafts_make_quicker_go_on_being_thought_about() -> None:
    found = world()
    for _ in range(100):
        found.answer(50, list(range(5, 25)))
    before = found.seconds
    for _ in range(100):
        found.answer(50, list(range(5, 25)))
    assert found.seconds - before < 0.5 * 2000


def test_a_hiccup_while_looking_for_drafts_is_soon_forgotten() -> None:
    found = world()
    found.say([5, 6, 7, 8, 9, 10, 11] * 20)
    found.clock.each = 500.0
    found.say([50, 51])
    found.clock.each = 0.01
    before = found.num_drafted
    found.say([5, 6, 7, 8, 9, 10, 11] * 60)
    assert found.num_drafted - before > 100


def test_answers_in_which_nothing_is_ever_found_are_hardly_thought_about() -> None:
    found = world()
    for number in range(300):
        found.answer(50, [1000 + 3 * number, 1001 + 3 * number, 1002 + 3 * number])
    assert found.num_thought < 0.15 * 900


def test_an_answer_whose_like_was_looked_at_in_vain_is_not_judged_step_by_step() -> None:
    found = world()
    found.say(list(range(1000, 1040)))
    before, num_before = found.thought_s, found.num_thought
    found.say(list(range(2000, 2200)))
    num_thought = found.num_thought - num_before
    # Who judges a step looks at the clock twice, who thinks about it four times more, for the books as well.
    num_judged = (found.thought_s - before) / found.clock.each / 2 - 2 * num_thought
    assert 0 < num_thought < num_judged < 0.4 * 200


def test_a_hiccup_while_thinking_in_vain_costs_no_more_than_half_a_step() -> None:
    found = world()
    prospects = found.speculator._prospects
    prospects.thinking.earn(0.0, gained_s=10.0)
    saved_s = prospects.thinking.left_s
    prospects.charge(1, 0.25 * saved_s)
    assert prospects.thinking.left_s == pytest.approx(0.75 * saved_s)
    found.speculator._costs.observe_plain(8, 0.5 * saved_s)
    prospects.charge(8, 500.0)
    assert prospects.thinking.left_s == pytest.approx(0.5 * saved_s)


def test_answers_that_begin_otherwise_go_on_being_thought_about() -> None:
    found = world()
    for number in range(100):
        found.answer(50, [1000 + 3 * number, 1001 + 3 * number, 1002 + 3 * number])
    before = found.num_drafted
    for _ in range(30):
        found.answer(60, [5, 6, 7, 8, 9, 10, 11, 12, 13, 14])
    assert found.num_drafted - before > 100


def test_what_does_not_pay_in_company_is_still_thought_about_alone() -> None:
    found = world()
    found.speculator._costs.observe_plain(8, 1.0)
    for _ in range(60):  # eight rows at once, in which every look for drafts is in vain
        seqs = [answer_that_begins_with(60) for _ in range(8)]
        if found.speculator.wants(seqs):
            found.speculator.draft([DraftRequest(seq, 6) for seq in seqs], 64)
        rows = [ScheduledRow(seq, seq.num_tokens - 1, 1, samples=True) for seq in seqs]
        found.speculator.observe(ScheduledBatch(rows), [RowResult([900])] * 8, 1.0)
    for _ in range(40):
        found.answer(60, [5, 6, 7, 8, 9, 10, 11, 12, 13, 14])
    assert found.num_drafted > 200


def test_of_answers_that_are_nearly_over_nothing_is_thought() -> None:
    found = world()
    for _ in range(20):
        found.answer(50, [7])
    before = found.num_thought
    for _ in range(20):
        found.answer(50, [7])
    assert found.num_thought == before


def test_looking_in_vain_takes_a_small_share_of_the_time_however_long_a_look_takes() -> None:
    found = world()
    prospects = found.speculator._prospects
    prospects.thinking = TimeAllowance(0.01, 1000.0)
    # Of an answer's time it takes no part.
    prospects.trials = AnswerTrials(lambda: found.clock.now)
    found.clock.each = 0.1
    for number in range(300):
        found.answer(50, [1000 + 2 * number, 1001 + 2 * number])
    # What a look takes is found out by two looks at the clock, of which the second one goes on as well.
    assert 0.0 < found.thought_s < 2 * 0.011 * found.seconds


def test_an_answer_that_ends_while_there_is_no_time_is_remembered_when_there_is() -> None:
    found = world()
    text = list(range(200, 220))
    ended = answer_that_begins_with(60)
    ended.token_ids.extend(array(INT64, text))
    found.speculator._prospects.thinking = thinking = TimeAllowance(0.0, 1.0)
    thinking.spend(1.0)
    found.speculator.ended(ended)
    found.seq = answer_that_begins_with(60)
    found.say(text)
    assert found.num_drafted == 0
    found.speculator.rest()
    thinking.earn(0.0, gained_s=2.0)
    found.seq = answer_that_begins_with(60)
    found.say(text)
    assert found.num_drafted > 10


class Heads:
    """Three heads, sure of the numbers that follow the newest token, or of others."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.num_asked = 0
        self.num_glances = 0
        self.is_promising: Callable[[Chosen], bool] | None = None
        self.on_chosen: Callable[[Chosen], None] | None = None
        self.is_asleep = False
        self.sees_end = False

    def take_spent_s(self) -> float:
        return 0.0

    def glance(self, seqs: SequenceOf[Sequence], *, asks_heads: bool = True) -> bool:
        self.num_glances += 1
        return True

    def says_end(
        self, seqs: SequenceOf[Sequence], are_near_end: SequenceOf[bool], chance: Callable[[int], float]
    ) -> bool:
        return self.sees_end

    def say(self, seqs: SequenceOf[Sequence], are_near_end: SequenceOf[bool]) -> HeadPredictions:
        self.num_asked += 1
        tokens = np.array([[seq.token_ids[-1] + self.offset + head for head in range(3)] for seq in seqs])
        kinds = [
            [first_by_heads(is_drawn=False, is_near_end=near) + 10 * head + 5 for head in range(3)]
            for near in are_near_end
        ]
        return HeadPredictions(tokens, np.array(kinds))


def world_with_heads(offset: int, fixed: float = 0.1, each: float = 0.1) -> tuple[World, Heads]:
    clock, heads = Clock(), Heads(offset)
    speculator = SpeculationController(
        costs(fixed, each),
        num_speculative_tokens=6,
        clock=clock,
        has_lookup=True,
        outlook=heads,  # type: ignore[arg-type]
    )
    return World(speculator, clock, fixed, each), heads


def test_heads_that_are_right_make_a_text_faster_that_never_repeats() -> None:
    found, heads = world_with_heads(offset=1)
    found.say(list(range(100, 700)))
    assert found.seconds < 0.45 * 600
    # Most steps have the heads look behind them in the same go.
    assert heads.num_glances > 0.8 * heads.num_asked


def test_heads_do_not_look_behind_a_step_that_most_likely_ends_the_answer() -> None:
    found, heads = world_with_heads(offset=1)
    for _ in range(20):
        found.answer(50, [51, 52])
    heads.num_glances = heads.num_asked = 0
    found.answer(50, [51, 52])
    assert heads.num_glances < max(1, heads.num_asked)


def test_where_heads_see_the_end_no_step_is_thought_about() -> None:
    found, heads = world_with_heads(offset=1)
    found.say(list(range(100, 120)))
    before = found.num_thought, found.num_drafted
    heads.sees_end = True
    found.say(list(range(120, 140)))
    assert (found.num_thought, found.num_drafted) == before
    heads.sees_end = False
    found.say(list(range(140, 180)))
    assert found.num_drafted > before[1] + 10


def stopping(seq: Sequence, token_id: int) -> Sequence:
    params = msgspec.structs.replace(seq.params, stop_token_ids=(token_id,))
    return replace(seq, params=params)


def test_heads_look_ahead_behind_answers_that_go_on_and_not_behind_their_end() -> None:
    found, heads = world_with_heads(offset=1)
    found.say(list(range(100, 110)))
    assert heads.is_promising is not None
    assert heads.is_promising([(found.seq, [110])])
    assert not heads.is_promising([(stopping(found.seq, 110), [110])])


def test_heads_do_not_look_ahead_where_such_answers_end_with_the_next_token() -> None:
    found, heads = world_with_heads(offset=1)
    found.speculator._prospects.thinking = TimeAllowance(0.01, 1000.0)
    for _ in range(20):
        found.answer(50, [7])
    found.answer(60, list(range(100, 130)))
    assert heads.is_promising is not None
    assert not heads.is_promising([(sequence([1, 2, 3]), [50])])
    assert heads.is_promising([(sequence([1, 2, 3]), [60])])


def test_heads_that_are_wrong_do_not_look_ahead_either() -> None:
    found, heads = world_with_heads(offset=2)
    found.say(list(range(100, 2000)))
    assert heads.is_promising is not None
    assert not heads.is_promising([(found.seq, [1])])


def test_of_an_answer_that_is_nearly_over_heads_are_not_asked_again_when_they_had_nothing_to_say() -> None:
    found, heads = world_with_heads(offset=1)
    for _ in range(20):
        found.answer(50, [51, 52, 53])
    assert heads.is_promising is not None
    found.seq = answer_that_begins_with(50)
    heads.sees_end = True
    found.say([51])
    heads.sees_end = False
    assert not heads.is_promising([(found.seq, [52])])
    before = found.num_thought
    found.say([52])
    assert found.num_thought == before
    other = replace(answer_that_begins_with(50), seq_id=2)
    assert heads.is_promising([(other, [51])])
    assert found.speculator.wants([other])


def test_a_step_that_was_thought_about_is_accounted_for_though_it_began_an_answer_that_is_closed() -> None:
    found, heads = world_with_heads(offset=1)
    found.say(list(range(100, 200)))
    # All of its prompt but the last token was cached: the step that begins the answer is a decode step.
    cached = sequence([1, 2, 3])
    assert found.speculator.wants([cached])
    found.speculator.draft([DraftRequest(cached, 6)], 64)
    found.speculator._prospects.begin = lambda chosen: False  # type: ignore[method-assign]
    assert heads.on_chosen is not None
    heads.on_chosen([(cached, [4])])
    assert heads.is_asleep
    rows = [ScheduledRow(cached, 2, 1, samples=True)]
    found.speculator.observe(ScheduledBatch(rows), [RowResult([4])], 1.0)

    others = [sequence([1, 2, 3]) for _ in range(2)]
    found.speculator.foresee(others)
    rows = [ScheduledRow(seq, 2, 1, samples=True) for seq in others]
    found.speculator.observe(ScheduledBatch(rows), [RowResult([4])] * 2, 1.0)


def test_a_step_with_prompts_that_begins_a_closed_answer_earns_no_time_for_thinking() -> None:
    found, heads = world_with_heads(offset=1)
    prospects = found.speculator._prospects
    prospects.thinking = TimeAllowance(0.01, 1000.0)
    prospects.begin = lambda chosen: False  # type: ignore[method-assign]
    seq = sequence([1, 2, 3])
    assert heads.on_chosen is not None
    for _ in range(8):
        found.speculator.foresee([seq])
        heads.on_chosen([(seq, [4])])
        found.speculator.observe(ScheduledBatch([ScheduledRow(seq, 0, 3, samples=True)]), [RowResult([4])], 100.0)
    assert prospects.thinking.left_s <= 0.0
    assert found.speculator._books._unseen_s == 0.0


class Rules:
    """A grammar that allows the first so many of the tokens that are guessed at once."""

    def __init__(self, num_allowed: int) -> None:
        self.num_allowed = num_allowed

    def forced_tokens(self) -> list[int]:
        return []

    def validate(self, token_ids: SequenceOf[int]) -> int:
        return min(self.num_allowed, len(token_ids))


def test_heads_say_what_comes_under_a_grammar_too() -> None:
    found, _ = world_with_heads(offset=1)
    found.seq.grammar = Rules(9)  # type: ignore[assignment]
    found.say(list(range(100, 700)))
    assert found.seconds < 0.45 * 600


def test_what_a_grammar_does_not_allow_is_no_draft() -> None:
    found, heads = world_with_heads(offset=1)
    found.seq.grammar = Rules(0)  # type: ignore[assignment]
    found.say(list(range(100, 700)))
    assert heads.num_asked > 0
    assert found.num_drafted == 0


def test_heads_that_are_wrong_are_soon_asked_no_more() -> None:
    found, heads = world_with_heads(offset=2)
    found.say(list(range(100, 2100)))
    assert found.seconds < 1.02 * 2000
    assert heads.num_asked < 0.03 * 2000


def test_heads_are_asked_again_when_they_might_have_become_right() -> None:
    found, heads = world_with_heads(offset=2)
    found.say(list(range(100, 1100)))
    heads.offset = 1
    before = found.num_drafted
    found.say(list(range(2000, 4500)))
    assert found.num_drafted - before > 1000


def test_heads_are_not_asked_where_even_right_drafts_would_not_pay() -> None:
    found, heads = world_with_heads(offset=1, fixed=0.3, each=0.9)
    found.say(list(range(100, 600)))
    assert heads.num_asked == 0
    found.say(list(range(600, 6600)))  # what was measured that long ago is doubted
    assert heads.num_asked < 0.01 * 6500
    assert found.seconds < 1.01 * 6500


def test_what_heads_and_text_both_know_comes_from_whoever_is_right_more_often() -> None:
    found, _ = world_with_heads(offset=2)
    found.say([5, 6, 7, 8, 9, 10, 11] * 60)
    assert found.seconds < 0.6 * 420
