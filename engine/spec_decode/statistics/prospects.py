"""In which steps looking for drafts may pay, told before any is looked for: from few looks at what is already known."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Literal

from engine.forecast.step_cost import StepCosts
from engine.spec_decode.statistics.allowance import TimeAllowance
from engine.spec_decode.statistics.answer_kinds import AnswerKinds
from engine.spec_decode.statistics.answer_lengths import AnswerLengths
from engine.spec_decode.statistics.answer_trials import AnswerTrials
from engine.spec_decode.statistics.foreseen_looks import ForeseenLooks, SortOfStep
from engine.spec_decode.statistics.guard import SpeculationGuard
from engine.spec_decode.statistics.planner import StepCost, plan_drafts
from engine.step.hidden_states import Chosen
from engine.step.sequence import Sequence

Source = Literal["lookup", "heads", "model"]

MIN_GAIN = 1.2
"""Expected gain from which a step speculates, for forecasts err."""
FEW_TOKENS = 3
"""Of answers with so few tokens to come guesses are judged apart."""
_LOWER_QUARTER = 0.25
_PLAIN_EVERY = 64
"""While speculation pays, one step in so many is plain, so that it is known what plain steps cost now."""
_THINKING_RATIO = 0.01
"""Share of decode steps' time that may go into drafts that come to nothing; what drafts gain is added to it."""
_MOST_SAVED_S = 0.004
"""Longest that is saved up for thinking: what drafts gained is there for looking further."""
_MOST_OWED_S = 0.0005
"""Longest that is worked off: about what one thought may be charged for a step of the bundled large model."""
_MOST_CHARGED = 0.5
"""Of a plain step, for one thought: what took longer was held up by something else."""
_HOPED_OF_LOOKUP = (0.98,) * 8
"""Chances of drafts in texts that were said before."""
_HOPED_OF_HEADS = (0.85, 0.75, 0.75)
"""The same of heads where they are good."""
_HOPE_FOR = 256
"""Steps until that is worked out anew."""
_QUIET_STEPS = 4
"""For which it holds that the like of some rows was looked at in vain: to find that out takes hundredths of a step."""
FEWEST_TOKENS = 2
"""Expected yet where it is worth looking for drafts: a last one is sampled anyway."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """What may be asked about a step."""

    expected: list[float]
    """Tokens each row is expected to say yet; 0 where looking for drafts would not pay."""
    may_look_up: bool
    may_look_ahead: bool
    may_ask: bool
    thinking_s: float = 0.0
    """What finding that out took."""


class Prospects:
    """Judges steps by their rows, by how the rows' answers began and by how long such answers get.

    All that comes to nothing, this judging included, is paid from a share of the time that decode steps take.
    """

    def __init__(
        self,
        costs: StepCosts,
        clock: Callable[[], float],
        *,
        has_lookup: bool,
        has_heads: bool,
        has_model: Callable[[], bool],
    ) -> None:
        """`has_model`: whether there is a draft model that works."""
        self.thinking = TimeAllowance(_THINKING_RATIO, _MOST_SAVED_S, _MOST_OWED_S)
        self.kinds = AnswerKinds()
        self.trials = AnswerTrials(clock)
        self.looks = ForeseenLooks()
        self._costs = costs
        self._clock = clock
        self._has_lookup = has_lookup
        self._has_heads = has_heads
        self._has_model = has_model
        self._lengths = AnswerLengths()
        self._guards: dict[tuple[Source, int, bool], SpeculationGuard] = {}
        cost = _WithThinking(costs)
        self._hopes: dict[Source, _Hopes] = {
            "lookup": _Hopes(_HOPED_OF_LOOKUP, cost),
            "heads": _Hopes(_HOPED_OF_HEADS, cost),
        }
        self._num_since_plain: dict[int, int] = {}
        # Of rows without hope: the first one's sequence, their number, and the steps until they are judged again.
        self._quiet: tuple[int, int] = (0, 0)
        self._num_quiet = 0
        # The same of rows that heads were asked about last, and nothing was drafted.
        self._in_vain: tuple[int, int] = (0, 0)

    def of_step(self, seqs: SequenceOf[Sequence]) -> Prospect | None:
        """Of a pure decode step of these rows; None where nothing is worth it."""
        num_rows = len(seqs)
        if self._num_quiet:
            self._num_quiet -= 1
            if self._quiet == (seqs[0].seq_id, num_rows):
                return None
            self._num_quiet = 0
        if self.thinking.left_s < 0.0 or self._num_since_plain.get(num_rows, 0) >= _PLAIN_EVERY:
            return None
        started_at = self._clock()
        prospect = self._judge(seqs, num_rows, started_at)
        if prospect is None:
            self.charge(num_rows, self._clock() - started_at)
        return prospect

    def charge(self, num_rows: int, seconds: float) -> None:
        """So long was thought about steps of so many rows, and nothing came of it."""
        self.thinking.spend(min(seconds, _MOST_CHARGED * self._costs.plain_s(num_rows)))

    def are_heads_wanted(self, chosen: Chosen) -> bool:
        """Whether heads will be asked about the step behind one that chose these tokens, as far as can be told, and
        are better asked at once."""
        self.looks.step_ended()
        if self.thinking.left_s < 0.0:
            return False
        going_on = [(seq, token_ids) for seq, token_ids in chosen if token_ids[-1] not in seq.params.stop_token_ids]
        num_rows = len(going_on)
        if not num_rows or (self._num_quiet > 1 and self._quiet == (going_on[0][0].seq_id, num_rows)):
            return False
        if not (self.guard(num_rows, "heads").is_open and self._hopes["heads"].is_high(num_rows)):
            return False
        worth = [self._num_worth_looking_ahead(seq, token_ids, num_rows) for seq, token_ids in going_on]
        most = max(worth)
        if not most:
            self._be_quiet([(seq.seq_id, self._first_of(seq, token_ids)) for seq, token_ids in going_on], fewest=1)
            return False
        if not self._hopes["heads"].is_high(num_rows, _num_open(worth)):
            return False
        is_near_end = most <= FEW_TOKENS
        if is_near_end:
            # Heads that have just had nothing to say most likely see the end now.
            was_in_vain = self._in_vain == (going_on[0][0].seq_id, num_rows)
            if was_in_vain or not self.guard(num_rows, "heads", is_short=True).is_open:
                return False
        is_first = any(not seq.num_output_tokens for seq, _ in chosen)
        return self.looks.foresee(SortOfStep(num_rows.bit_length(), is_first, is_near_end))

    def is_look_promising(self, seqs: SequenceOf[Sequence]) -> bool:
        """Whether heads will be asked behind a step with prompts that chooses these sequences' next tokens, as far as
        can be told before it says how their answers begin."""
        self.looks.step_ended()
        num_rows = len(seqs)
        if self.thinking.left_s < 0.0 or not self.trials.may_open(seqs):
            return False
        if not (self.guard(num_rows, "heads").is_open and self._hopes["heads"].is_high(num_rows)):
            return False
        return self.looks.are_used(first_of_answers(num_rows))

    def are_looks_used(self, num_rows: int) -> bool:
        """Whether behind a decode step of so many rows another one mostly follows that heads are asked about."""
        return self.looks.are_used(SortOfStep(num_rows.bit_length(), is_first=False, is_near_end=False))

    def asked_in_vain(self, seqs: SequenceOf[Sequence]) -> None:
        """Heads were asked about the next step of these rows, which has no drafts."""
        self._in_vain = seqs[0].seq_id, len(seqs)

    def guard(self, num_rows: int, source: Source, *, is_short: bool = False) -> SpeculationGuard:
        """Of steps of about so many rows; `is_short`: whose answers are all nearly over."""
        key = source, num_rows.bit_length(), is_short
        guard = self._guards.get(key)
        if guard is None:
            guard = self._guards[key] = SpeculationGuard()
        return guard

    def num_expected(self, seq: Sequence, quantile: float = 0.5) -> float:
        """Tokens a sequence is expected to say yet, the one that ends it included."""
        first = seq.token_ids[seq.num_prompt_tokens] if seq.num_output_tokens else None
        return self._num_left(seq, first, 0, quantile)

    def begin(self, chosen: Chosen) -> bool:
        """Decide about answers of which a step under way has just chosen the first tokens; whether any is open, of
        those that go on."""
        firsts = {seq: token_ids[0] for seq, token_ids in chosen if not seq.num_output_tokens}
        going_on = [seq for seq, token_ids in chosen if token_ids[-1] not in seq.params.stop_token_ids]

        def is_short(seq: Sequence) -> bool | None:
            first = firsts.get(seq)
            return None if first is None else self._is_short(seq, first, 1)

        self.trials.begin(going_on, is_short, len(going_on), {seq: len(token_ids) for seq, token_ids in chosen})
        return any(map(self.trials.is_open, going_on))

    def is_open(self, seqs: SequenceOf[Sequence]) -> bool:
        """Whether any of these rows' answers is open; decides about those that are new."""

        def is_short(seq: Sequence) -> bool | None:
            return self._is_short(seq, first_token(seq), 0) if seq.num_output_tokens else None

        self.trials.begin(seqs, is_short, len(seqs))
        return any(map(self.trials.is_open, seqs))

    def _is_short(self, seq: Sequence, first: int, num_new: int) -> bool:
        """Whether a quarter of the answers that begin alike are over after a few tokens more."""
        return self._num_left(seq, first, num_new, _LOWER_QUARTER) <= FEW_TOKENS

    def has_drafted(self, num_rows: int) -> bool:
        """Whether steps of so many rows had drafts since the last plain one."""
        return bool(self._num_since_plain.get(num_rows))

    def drafted(self, num_rows: int) -> None:
        """A step of so many rows had drafts."""
        self._num_since_plain[num_rows] = self._num_since_plain.get(num_rows, 0) + 1

    def plain(self, num_rows: int) -> None:
        """A step of so many rows had none, and its time was taken down."""
        self._num_since_plain[num_rows] = 0

    def ended(self, seq: Sequence) -> None:
        """Remember how long an answer got, and how long it took."""
        self.trials.end(seq)
        self._lengths.observe(seq.token_ids[seq.num_prompt_tokens], seq.num_output_tokens)

    def _judge(self, seqs: SequenceOf[Sequence], num_rows: int, started_at: float) -> Prospect | None:
        if self._costs.plain_s(num_rows) <= 0.0:
            return None
        may_look_up = self._has_lookup and self._may_pay("lookup", num_rows)
        may_look_ahead = self._has_heads and self._may_pay("heads", num_rows)
        may_ask = self._has_model() and self.guard(num_rows, "model").allows()
        if not (may_look_up or may_look_ahead or may_ask):
            return None
        expected = [self._num_worth_drafting(seq, num_rows) for seq in seqs]
        most, num_open = max(expected), _num_open(expected)
        if not most:
            self._be_quiet([(seq.seq_id, first_token(seq)) for seq in seqs], fewest=0)
            return None
        if num_open < num_rows and not may_ask:
            may_look_up = may_look_up and self._hopes["lookup"].allow(num_rows, num_open)
            may_look_ahead = may_look_ahead and self._hopes["heads"].allow(num_rows, num_open)
            if not (may_look_up or may_look_ahead):
                return None
        if most <= FEW_TOKENS and not may_ask and self._in_vain == (seqs[0].seq_id, num_rows):
            return None
        if may_look_ahead and most <= FEW_TOKENS:
            # Of two or three tokens there is little to save, and what heads cost is the same.
            may_look_ahead = self.guard(num_rows, "heads", is_short=True).allows()
            if not (may_look_up or may_look_ahead or may_ask):
                return None
        return Prospect(expected, may_look_up, may_look_ahead, may_ask, self._clock() - started_at)

    def _be_quiet(self, rows: SequenceOf[tuple[int, int]], fewest: int) -> None:
        """Judge rows, told by their ids and how their answers began, only when a few steps have passed."""
        num_rows = len(rows)
        num_steps = min(_QUIET_STEPS, *(self.kinds.num_paused(first, num_rows) for _, first in rows))
        self._quiet = rows[0][0], num_rows
        self._num_quiet = max(fewest, num_steps)
        if num_steps:
            for _, first in rows:
                self.kinds.pass_steps(first, num_rows, num_steps)

    def _may_pay(self, source: Source, num_rows: int) -> bool:
        return self.guard(num_rows, source).allows() and self._hopes[source].allow(num_rows)

    def _num_worth_drafting(self, seq: Sequence, num_rows: int) -> float:
        """Tokens a sequence is expected to say yet; 0 where they are too few, or its like was looked at in vain."""
        if not self.trials.is_open(seq):
            return 0.0
        num_tokens = self.num_expected(seq)
        if num_tokens < FEWEST_TOKENS or not self.kinds.allows(first_token(seq), num_rows):
            return 0.0
        return num_tokens

    def _num_worth_looking_ahead(self, seq: Sequence, token_ids: SequenceOf[int], num_rows: int) -> float:
        """The same behind tokens that a step has just chosen."""
        if not self.trials.is_open(seq):
            return 0.0
        first = self._first_of(seq, token_ids)
        num_tokens = self._num_left(seq, first, len(token_ids))
        return num_tokens if num_tokens >= FEWEST_TOKENS and self.kinds.is_open(first, num_rows) else 0.0

    @staticmethod
    def _first_of(seq: Sequence, token_ids: SequenceOf[int]) -> int:
        """How an answer began to which these tokens are yet to be added."""
        return seq.token_ids[seq.num_prompt_tokens] if seq.num_output_tokens else token_ids[0]

    def _num_left(self, seq: Sequence, first: int | None, num_new: int, quantile: float = 0.5) -> float:
        """Tokens expected of an answer that began with `first`, behind `num_new` that the sequence has yet to take."""
        num_left = self._lengths.remaining(first, seq.num_output_tokens + num_new, quantile)
        return min(num_left, seq.max_total_tokens - seq.num_tokens - num_new)


class _Hopes:
    """Whether drafts would pay if they were as right as they often are, by rows and by how many of them may get some;
    worked out now and then."""

    def __init__(self, chances: tuple[float, ...], cost: StepCost) -> None:
        self._chances = chances
        self._cost = cost
        # What was found, and for how many steps yet that holds.
        self._found: dict[tuple[int, int], tuple[bool, int]] = {}

    def is_high(self, num_rows: int, num_open: int | None = None) -> bool:
        """What was found last; None: all rows may get drafts."""
        return self._found.get((num_rows, num_open or num_rows), (False, 0))[0]

    def allow(self, num_rows: int, num_open: int | None = None) -> bool:
        """The same, found anew when it is time; asked once a step."""
        key = num_rows, num_open or num_rows
        is_hopeful, num_left = self._found.get(key, (False, 0))
        if not num_left:
            plan = plan_drafts([self._chances] * key[1], num_rows, self._cost, min_gain=MIN_GAIN)
            is_hopeful = any(plan.counts)
            num_left = _HOPE_FOR
        self._found[key] = is_hopeful, num_left - 1
        return is_hopeful


class _WithThinking:
    """A step's cost to which is added what thinking about it takes, heads that are asked apart included."""

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self.plain_s, self.per_draft_s = costs.lookup.plain_s, costs.lookup.per_draft_s

    def drafting_s(self, num_rows: int) -> float:
        """What thinking, and verifying anything at all, adds."""
        return self._costs.lookup.drafting_s(num_rows) + self._costs.thinking_s(num_rows)


def _num_open(expected: SequenceOf[float]) -> int:
    """Rows that may get drafts."""
    return sum(1 for num_tokens in expected if num_tokens)


def first_of_answers(num_rows: int) -> SortOfStep:
    """A step that will choose so many tokens, of which some begin an answer nobody knows yet."""
    return SortOfStep(num_rows.bit_length(), is_first=True, is_near_end=False)


def first_token(seq: Sequence) -> int:
    """How a sequence's answer began; its last prompt token while there is none."""
    return seq.token_ids[min(seq.num_prompt_tokens, seq.num_tokens - 1)]
