"""The switch: which rows get how many drafts from where in each step, decided by what was measured."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Literal

from engine.core.batch import RowResult, ScheduledBatch
from engine.core.drafting import DraftRequest
from engine.core.sequence import Sequence
from engine.speculation.ahead import Outlook
from engine.speculation.allowance import Allowance
from engine.speculation.answer_kinds import AnswerKinds
from engine.speculation.answer_lengths import AnswerLengths
from engine.speculation.guard import Guard
from engine.speculation.lookup import Found, Lookup, Place
from engine.speculation.model_drafting import DraftModel, ModelDrafting
from engine.speculation.planner import StepCost, plan_drafts
from engine.speculation.step_cost import StepCosts
from engine.speculation.track_record import TrackRecord
from engine.speculation.walk_choice import WalkChoice, Walked

Source = Literal["lookup", "heads", "model"]
"""The dearest of those that were asked in a step."""

_PLAIN_EVERY = 64
"""While speculation pays, one step in so many is plain, so that it is known what plain steps cost now."""
_MEASURED_EVERY = 4
"""While none is thought about, the time of one step in so many is taken down: most should cost nothing at all."""
_THINKING_RATIO = 0.01
"""Share of the time that may go into looking for drafts where there are none; what drafts gain is added to it."""
_MOST_SAVED_S = 0.001
"""Longest that is saved up for thinking."""
_KEPT_DECAY = 0.95
_MOST_KEPT = 2.0
_MIN_GAIN = 1.2
"""Expected gain from which a step speculates, for forecasts err."""
_HOPED_CHANCES: dict[Source, tuple[float, ...]] = {"lookup": (0.98,) * 8, "heads": (0.85, 0.75, 0.75)}
"""Of texts that were said before, and of heads where they are good."""
_HOPE_FOR = 256
"""Steps until that is worked out anew."""
_LEAST_CHANCE = 0.1
"""Guesses end where all of them together are right more rarely."""
_FEW_TOKENS = 3
"""Of answers with so few tokens to come guesses are judged apart."""
_FEWEST_TOKENS = 2
"""Expected yet where it is worth looking for drafts: a last one is sampled anyway."""
_LENGTH_MARGIN = 1.5
"""How many times the tokens expected yet a row may be drafted, for lengths vary."""


@dataclass(slots=True)
class _Step:
    """What was thought about a step."""

    expected: list[float]
    """Tokens each row is expected to say yet; 0 where looking for drafts would not pay."""
    may_look_up: bool
    may_look_ahead: bool
    may_ask: bool
    found: Found | None = None
    """What was looked up or said by heads, where no model was asked and no grammar had a say."""
    with_heads: bool = False
    walked: Walked | None = None
    """What was guessed otherwise."""
    drafting_s: float = 0.0

    @property
    def source(self) -> Source:
        """Who was asked."""
        if self.walked is not None and self.walked.with_model:
            return "model"
        return "heads" if self.with_heads else "lookup"

    @property
    def gain(self) -> float:
        """Tokens per second that were promised, as a multiple of those without drafts."""
        told = self.found or self.walked
        return 1.0 if told is None else told.gain


class Speculator:
    """Drafts for pure decode steps from lookup, heads and a draft model, and the books on what each is worth.

    Decisions depend on time measured; answers do not, for a draft only stands where it is what would have been said.
    """

    def __init__(
        self,
        costs: StepCosts,
        *,
        max_drafts: int,
        clock: Callable[[], float],
        has_lookup: bool,
        outlook: Outlook | None = None,
        model: DraftModel | None = None,
        model_reach: int = 0,
    ) -> None:
        """`has_lookup`: whether drafts are looked up in the text and in earlier answers; `outlook`: asks heads beside
        that; `model_reach`: the most tokens the draft model can read of one sequence."""
        self.max_drafts = max_drafts
        self._costs = costs
        self._clock = clock
        self._record = TrackRecord()
        self._lookup = Lookup(self._record) if has_lookup else None
        self._outlook = outlook if has_lookup else None
        self._lengths = AnswerLengths()
        drafting: ModelDrafting | None = None
        if model is not None:
            drafting = ModelDrafting(model, self._lookup, self._record, costs, clock, reach=model_reach)
        self._walks = WalkChoice(self._lookup, drafting, self._record, costs, self._num_expected, least_gain=_MIN_GAIN)
        self._kinds = AnswerKinds()
        self._guards: dict[tuple[Source, int, bool], Guard] = {}
        # What came of promised gains, as a share of them.
        self._kept: dict[tuple[Source, int], float] = {}
        self._num_since_plain: dict[int, int] = {}
        # For so many steps yet drafts may pay in steps of so many rows; below 0: they cannot.
        self._num_hopeful: dict[tuple[Source, int], int] = {}
        self._thinking = Allowance(_THINKING_RATIO, _MOST_SAVED_S)
        self._step: _Step | None = None
        """Of the step that is being computed; None: nothing was thought about it."""
        self._num_unmeasured = 0
        self._ahead_s = 0.0
        """What looking ahead took within the last step."""

    def wants(self, seqs: SequenceOf[Sequence]) -> bool:
        """Whether drafts may pay in a pure decode step of these rows."""
        self._step = self._think(seqs)
        if self._outlook is not None:
            may_look_ahead = self._step is not None and self._step.may_look_ahead
            self._outlook.want(len(seqs), is_wanted=may_look_ahead)
        return self._step is not None

    def draft(self, requests: SequenceOf[DraftRequest], budget: int) -> list[tuple[int, ...]]:
        """Drafts for each row of the step asked about, at most `budget` in all; empty where they would not pay."""
        step = self._step
        assert step is not None, "asked for drafts that were not wanted"
        started_at = self._clock()
        drafts = self._choose(step, requests, budget)
        step.drafting_s = self._clock() - started_at
        return drafts

    def observe(self, batch: ScheduledBatch, results: SequenceOf[RowResult], seconds: float) -> None:
        """Learn from a step that took `seconds`, drafting included; next to nothing where nothing was thought."""
        step, self._step = self._step, None
        if self._outlook is not None:
            # Looked ahead for the next step: its cost, not this one's.
            ahead_s, self._ahead_s = self._ahead_s, self._outlook.take_spent_s()
            seconds -= self._ahead_s
            if step is not None and step.with_heads:
                step.drafting_s += ahead_s
                seconds += ahead_s
        self._walks.pass_time(seconds)
        if step is None:
            self._thinking.earn(seconds)
            self._account_plain(batch, seconds)
            return
        if step.found is not None and self._lookup is not None:
            self._lookup.judge(step.found, [result.token_ids for result in results])
        if step.walked is not None:
            for walk, result in zip(step.walked.walks, results, strict=True):
                self._walks.judge(walk, result.token_ids)
        self._account(batch, step, [len(result.token_ids) for result in results], seconds)

    def ended(self, seq: Sequence) -> None:
        """Remember what an answer said and how long it got."""
        if self._lookup is not None:
            self._lookup.learn(seq)
        self._lengths.observe(seq.token_ids[seq.num_prompt_tokens], seq.num_output_tokens)

    def _think(self, seqs: SequenceOf[Sequence]) -> _Step | None:
        """What may be asked about a step; None where nothing is worth it."""
        if self._thinking.left_s < 0.0:
            return None
        num_rows = len(seqs)
        if self._num_since_plain.get(num_rows, 0) >= _PLAIN_EVERY or self._costs.plain_s(num_rows) <= 0.0:
            return None
        costs = self._costs
        may_look_up = self._lookup is not None and self._may_pay(num_rows, "lookup", costs.lookup)
        may_look_ahead = self._outlook is not None and self._may_pay(num_rows, "heads", costs.heads)
        may_ask = self._walks.has_model and self._guard(num_rows, "model").allows()
        if not (may_look_up or may_look_ahead or may_ask):
            return None
        expected = [self._num_worth_drafting(seq, num_rows) for seq in seqs]
        if not any(expected):
            return None
        if may_look_ahead and max(expected) <= _FEW_TOKENS:
            # Of two or three tokens there is little to save, and what heads cost is the same.
            may_look_ahead = self._guard(num_rows, "heads", is_short=True).allows()
            if not (may_look_up or may_look_ahead or may_ask):
                return None
        return _Step(expected, may_look_up=may_look_up, may_look_ahead=may_look_ahead, may_ask=may_ask)

    def _choose(self, step: _Step, requests: SequenceOf[DraftRequest], budget: int) -> list[tuple[int, ...]]:
        """Of every row's guesses those that are worth verifying."""
        num_rows = len(requests)
        places = [
            _place(request, budget // num_rows, num_tokens)
            for request, num_tokens in zip(requests, step.expected, strict=True)
        ]
        asking = self._walks.asking(places) if step.may_ask else []
        has_room = any(place.limit > 0 for place in places)
        if not asking and not (has_room and (step.may_look_up or step.may_look_ahead)):
            return [()] * num_rows
        cost = self._costs.lookup
        plain_s, each_s = self._costs.plain_s(num_rows), cost.per_draft_s(num_rows)
        # Below it a draft earns less than the time it takes, whatever else the step does.
        least_chance = max(_LEAST_CHANCE, min(each_s * num_rows / plain_s, 1.0))
        if asking or self._lookup is None or any(request.seq.grammar is not None for request in requests):
            kept = self._kept_share(num_rows, "lookup"), self._kept_share(num_rows, "model")
            step.walked = self._walks.choose(places, asking, least_chance, may_look_up=step.may_look_up, kept=kept)
            return step.walked.drafts()
        costs = plain_s, cost.drafting_s(num_rows), each_s
        ahead = None
        if step.may_look_ahead and self._outlook is not None:
            started_at = self._clock()
            ahead = self._outlook.say([place.seq for place in places], [place.is_near_end for place in places])
            if ahead is not None:
                step.with_heads = True
                self._costs.observe_ahead(num_rows, self._ahead_s + self._clock() - started_at)
        step.found = self._lookup.choose(places, least_chance, costs, _MIN_GAIN, ahead)
        return step.found.drafts()

    def _may_pay(self, num_rows: int, source: Source, cost: StepCost) -> bool:
        """Whether drafts would pay if they were as right as they often are, and do as far as they were made."""
        if not self._guard(num_rows, source).allows():
            return False
        key = source, num_rows
        num_left = self._num_hopeful.get(key, 0)
        if not num_left:
            hopes = plan_drafts([_HOPED_CHANCES[source]] * num_rows, num_rows, cost, min_gain=_MIN_GAIN)
            num_left = _HOPE_FOR if any(hopes.counts) else -_HOPE_FOR
        self._num_hopeful[key] = num_left - 1 if num_left > 0 else num_left + 1
        return num_left > 0

    def _num_worth_drafting(self, seq: Sequence, num_rows: int) -> float:
        """Tokens a sequence is expected to say yet; 0 where they are too few, or its like was looked at in vain."""
        num_tokens = self._num_expected(seq)
        if num_tokens < _FEWEST_TOKENS or not self._kinds.allows(_first_token(seq), num_rows):
            return 0.0
        return num_tokens

    def _num_expected(self, seq: Sequence, quantile: float = 0.5) -> float:
        """Tokens a sequence is expected to say yet, the one that ends it included."""
        first = seq.token_ids[seq.num_prompt_tokens] if seq.num_output_tokens else None
        return min(
            self._lengths.remaining(first, seq.num_output_tokens, quantile), seq.max_total_tokens - seq.num_tokens
        )

    def _account_plain(self, batch: ScheduledBatch, seconds: float) -> None:
        """Enter what a step cost that nothing was thought about; while all are such, some of them do."""
        num_rows = len(batch.rows)
        self._num_unmeasured += 1
        if self._num_unmeasured < _MEASURED_EVERY and not self._num_since_plain.get(num_rows):
            return
        if all(row.num_tokens == 1 and row.samples for row in batch.rows):
            self._note_plain(num_rows, seconds)

    def _note_plain(self, num_rows: int, seconds: float) -> None:
        self._costs.observe_plain(num_rows, seconds)
        self._num_since_plain[num_rows] = self._num_unmeasured = 0

    def _account(self, batch: ScheduledBatch, step: _Step, num_tokens: SequenceOf[int], seconds: float) -> None:
        """Enter what a step cost that was thought about, and what it was worth."""
        num_rows = len(batch.rows)
        num_drafts = sum(len(row.draft_token_ids) for row in batch.rows)
        if num_drafts:
            self._costs.observe_verification(num_rows, num_drafts, seconds - step.drafting_s)
            self._num_since_plain[num_rows] = self._num_since_plain.get(num_rows, 0) + 1
        elif step.source == "lookup":  # whoever else is asked leaves the next step little in the processor's caches
            self._note_plain(num_rows, seconds - step.drafting_s)
        # A step without drafts is worth itself; thinking about them in vain is what it lost.
        plain_s = self._costs.plain_s(num_rows)
        token_s = plain_s / num_rows
        spent_s = seconds if num_drafts else plain_s + step.drafting_s
        self._judge_kinds(batch, step, num_tokens, token_s=token_s, spent_s=spent_s / num_rows)
        gained_s = 0.0
        if num_drafts or step.source != "lookup":
            gained_s = self._judge_step(step, num_rows, token_s * sum(num_tokens), spent_s)
        else:
            self._thinking.spend(step.drafting_s)
            if num_rows > 1:  # many kinds of answers come in company, and one that pays must not pay for all
                self._guard(num_rows, "lookup").observe(plain_s, spent_s)
        self._thinking.earn(seconds, gained_s)

    def _judge_kinds(
        self, batch: ScheduledBatch, step: _Step, num_tokens: SequenceOf[int], *, token_s: float, spent_s: float
    ) -> None:
        """What thinking was worth for each row that was thought about; `spent_s` for each of them."""
        for row, expected, count in zip(batch.rows, step.expected, num_tokens, strict=True):
            if expected:
                self._kinds.observe(_first_token(row.seq), len(batch.rows), token_s * count, spent_s)

    def _judge_step(self, step: _Step, num_rows: int, worth_s: float, spent_s: float) -> float:
        """Learn from a step with drafts; the seconds that it gained."""
        is_short = step.source == "heads" and max(step.expected) <= _FEW_TOKENS
        self._guard(num_rows, step.source, is_short=is_short).observe(worth_s, spent_s)
        share = min(worth_s / spent_s / step.gain, _MOST_KEPT)
        key = step.source, num_rows.bit_length()
        self._kept[key] = _KEPT_DECAY * self._kept.get(key, 1.0) + (1.0 - _KEPT_DECAY) * share
        return worth_s - spent_s

    def _kept_share(self, num_rows: int, source: Source) -> float:
        return self._kept.get((source, num_rows.bit_length()), 1.0)

    def _guard(self, num_rows: int, source: Source, *, is_short: bool = False) -> Guard:
        key = source, num_rows.bit_length(), is_short
        guard = self._guards.get(key)
        if guard is None:
            guard = self._guards[key] = Guard()
        return guard


def _first_token(seq: Sequence) -> int:
    """How a sequence's answer began; its last prompt token while there is none."""
    return seq.token_ids[min(seq.num_prompt_tokens, seq.num_tokens - 1)]


def _place(request: DraftRequest, share: int, num_expected: float) -> Place:
    """Where to look for how many guesses; `share`: this row's of the step's budget."""
    limit = min(request.max_drafts, share, int(_LENGTH_MARGIN * num_expected) - 1)
    return Place(request.seq, max(0, limit), num_expected <= _FEW_TOKENS)
