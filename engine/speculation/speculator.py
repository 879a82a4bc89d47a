"""The switch: which rows get how many drafts from where in each step, decided by what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from engine.core.batch import RowResult, ScheduledBatch
from engine.core.drafting import DraftRequest
from engine.core.sequence import Sequence
from engine.speculation.allowance import Allowance
from engine.speculation.answer_kinds import AnswerKinds
from engine.speculation.answer_lengths import AnswerLengths
from engine.speculation.answer_memory import SIZES, AnswerMemory
from engine.speculation.guard import Guard
from engine.speculation.guess import MODEL, Guess, is_by_model
from engine.speculation.model_drafting import DraftModel, ModelDrafting
from engine.speculation.planner import DraftPlan, plan_drafts
from engine.speculation.step_cost import StepCosts
from engine.speculation.text_index import TextIndex
from engine.speculation.track_record import TrackRecord
from engine.speculation.walk import Walk

_PLAIN_EVERY = 64
"""While speculation pays, one step in so many is plain, so that it is known what plain steps cost now."""
_PROBE_RATIO = 0.003
"""Share of the time that may go into finding out whether the draft model pays after all."""
_THINKING_RATIO = 0.01
"""Share of the time that may go into looking for drafts where there are none; what drafts gain is added to it."""
_MOST_SAVED_S = 0.001
"""Longest that is saved up for thinking."""
_READING_RATIO = 0.2
"""Reading a sequence's text may take the draft model this share of the sequence's expected remaining time."""
_KEPT_DECAY = 0.95
_MOST_KEPT = 2.0
_MIN_GAIN = 1.2
"""Expected gain from which a step speculates, for forecasts err."""
_LEAST_CHANCE = 0.1
"""Guesses end where all of them together are right more rarely."""
_FEW_TOKENS = 3
"""Of answers with so few tokens to come guesses are judged apart."""
_LENGTH_MARGIN = 1.5
"""How many times the tokens expected yet a row may be drafted, for lengths vary."""


@dataclass(slots=True)
class _Step:
    """What was thought of the step that is being computed."""

    is_open: list[bool] = field(default_factory=list)
    """For which rows looking for drafts may pay; empty: nothing was thought about."""
    may_look_up: bool = False
    may_ask: bool = False
    walks: list[Walk] = field(default_factory=list)
    drafting_s: float = 0.0
    with_model: bool = False
    gain: float = 1.0
    """Tokens per second that were promised, as a multiple of those without drafts."""


class Speculator:
    """Drafts for pure decode steps from lookup and from a draft model, and the books on what both are worth.

    Decisions depend on time measured; answers do not, for a draft only stands where it is what would have been said.
    """

    def __init__(
        self,
        costs: StepCosts,
        *,
        max_drafts: int,
        clock: Callable[[], float],
        has_lookup: bool,
        model: DraftModel | None = None,
        model_reach: int = 0,
    ) -> None:
        """`has_lookup`: whether drafts are looked up in the text and in earlier answers; `model_reach`: the most
        tokens the draft model can read of one sequence."""
        self.max_drafts = max_drafts
        self._costs = costs
        self._clock = clock
        self._has_lookup = has_lookup
        self._record = TrackRecord()
        self._model = None if model is None else ModelDrafting(model, self._record, costs, clock, reach=model_reach)
        self._memory = AnswerMemory()
        self._lengths = AnswerLengths()
        self._kinds = AnswerKinds()
        self._indexes: WeakKeyDictionary[Sequence, TextIndex] = WeakKeyDictionary()
        self._guards: dict[tuple[bool, int], Guard] = {}
        # What came of promised gains, as a share of them.
        self._kept: dict[tuple[bool, int], float] = {}
        self._num_since_plain: dict[int, int] = {}
        self._thinking = Allowance(_THINKING_RATIO, _MOST_SAVED_S)
        self._probing = Allowance(_PROBE_RATIO, math.inf)
        self._step = _Step()

    def wants(self, seqs: SequenceOf[Sequence]) -> bool:
        """Whether drafts may pay in a pure decode step of these rows."""
        num_rows, step = len(seqs), self._step
        step.is_open = []
        if self._num_since_plain.get(num_rows, 0) >= _PLAIN_EVERY:
            return False
        if self._thinking.left_s < 0.0 or self._costs.plain_s(num_rows) <= 0.0:
            return False
        step.may_look_up = self._has_lookup and self._guard(num_rows, with_model=False).allows()
        step.may_ask = self._has_model and self._guard(num_rows, with_model=True).allows()
        if not (step.may_look_up or step.may_ask):
            return False
        is_open = [self._kinds.allows(_first_token(seq)) for seq in seqs]
        if not any(is_open):
            return False
        step.is_open = is_open
        return True

    def draft(self, requests: SequenceOf[DraftRequest], budget: int) -> list[tuple[int, ...]]:
        """Drafts for each row of the step asked about, at most `budget` in all; empty where they would not pay."""
        step = self._step
        started_at = self._clock()
        walks, counts = self._choose(requests, budget, may_look_up=step.may_look_up, may_ask=step.may_ask)
        step.walks = walks
        step.drafting_s = self._clock() - started_at
        if not any(counts):
            return [()] * len(requests)
        return [tuple(walk.token_ids[:count]) for walk, count in zip(walks, counts, strict=True)]

    def observe(self, batch: ScheduledBatch, results: SequenceOf[RowResult], seconds: float) -> None:
        """Learn from a step that took `seconds`, drafting included."""
        step, self._step = self._step, _Step()
        if self._model is not None:
            self._probing.earn(seconds)
        for row, result in zip(batch.rows, results, strict=True):
            if result.token_ids:
                self._learn(row.seq, result.token_ids, follows_output=row.num_tokens == 1)
        if any(row.num_tokens != 1 or not row.samples for row in batch.rows):
            return
        for walk, result in zip(step.walks, results, strict=False):
            self._judge(walk, result.token_ids)
        self._account(batch, step, [len(result.token_ids) for result in results], seconds)

    @property
    def _has_model(self) -> bool:
        return self._model is not None and not self._model.is_broken

    def _choose(
        self, requests: SequenceOf[DraftRequest], budget: int, *, may_look_up: bool, may_ask: bool
    ) -> tuple[list[Walk], list[int]]:
        """Every row's guesses, and how many of them are worth verifying."""
        num_rows = len(requests)
        expected = [self._num_expected(request.seq) for request in requests]
        limits = [
            min(request.max_drafts, budget // num_rows, int(_LENGTH_MARGIN * num_tokens) - 1) if is_open else 0
            for request, num_tokens, is_open in zip(requests, expected, self._step.is_open, strict=True)
        ]
        asking = self._asking(requests, limits) if may_ask else []
        if not asking and not (may_look_up and max(limits) > 0):
            return [], [0] * num_rows
        # Below it a draft earns less than the time it takes, whatever else the step does.
        least = self._costs.lookup.per_draft_s(num_rows) * num_rows / self._costs.plain_s(num_rows)
        least = max(_LEAST_CHANCE, min(least, 1.0))
        walks = [
            self._walk(request.seq, limit, least, is_near_end=num_tokens <= _FEW_TOKENS)
            for request, limit, num_tokens in zip(requests, limits, expected, strict=True)
        ]
        hoped_gain, num_sure = self._hope(walks, asking) if asking else (0.0, [])
        for walk in walks:
            walk.go()
        plan = self._plan(walks, _MIN_GAIN if may_look_up else math.inf)
        self._step.gain = plan.gain
        if hoped_gain * self._kept_share(num_rows, with_model=True) > plan.gain * self._kept_share(num_rows):
            self._step.gain = hoped_gain
            plan = self._ask(walks, asking, num_sure)
        elif asking and not any(plan.counts):
            self._probe([walks[index] for index in asking], num_rows)
        return walks, plan.counts

    def _walk(self, seq: Sequence, limit: int, least: float, *, is_near_end: bool) -> Walk:
        index = None
        if self._has_lookup and limit > 0:
            index = self._indexes.get(seq)
            if index is None:
                index = self._indexes[seq] = TextIndex()
            index.extend(seq.token_ids)
        return Walk(seq, limit, index, self._memory, self._record, least_chance=least, is_near_end=is_near_end)

    def _plan(self, walks: SequenceOf[Walk], min_gain: float) -> DraftPlan:
        chances = [[guess.chance for guess in walk.guesses] for walk in walks]
        return plan_drafts(chances, len(walks), self._costs.lookup, min_gain=min_gain)

    def _asking(self, requests: SequenceOf[DraftRequest], limits: SequenceOf[int]) -> list[int]:
        """The rows that the draft model could draft for, at once or after reading that pays for most such answers."""
        model = self._model
        assert model is not None
        asking = []
        token_s = self._costs.plain_s(len(requests)) / len(requests)
        for index, (request, limit) in enumerate(zip(requests, limits, strict=True)):
            if model.has_room(request.seq, limit):
                reading_s = model.reading_s(request.seq)
                if not reading_s or reading_s <= _READING_RATIO * token_s * self._num_expected(request.seq, 0.25):
                    asking.append(index)
        return asking

    def _hope(self, walks: SequenceOf[Walk], asking: SequenceOf[int]) -> tuple[float, list[int]]:
        """What drafts of the model promise to gain, and how many guesses of each row are as likely without it."""
        typical = self._record.chances[MODEL]
        for walk in walks:
            walk.go(typical)
        num_sure = [len(walk.guesses) for walk in walks]
        chances = [[guess.chance for guess in walk.guesses] for walk in walks]
        for index in asking:
            if not walks[index].is_over:
                chances[index] += [typical] * (walks[index].limit - num_sure[index])
        return plan_drafts(chances, len(walks), self._costs.model, min_gain=_MIN_GAIN).gain, num_sure

    def _ask(self, walks: SequenceOf[Walk], asking: SequenceOf[int], num_sure: SequenceOf[int]) -> DraftPlan:
        """Replace the less likely lookups by what the model says."""
        assert self._model is not None
        self._step.with_model = True
        for index in asking:
            walks[index].rewind(num_sure[index])
        self._model.extend([walks[index] for index in asking], len(walks))
        return self._plan(walks, 1.0)

    def _probe(self, walks: SequenceOf[Walk], num_rows: int) -> None:
        """A guess of a model that does not seem to pay, when enough time has been saved up for it; only judged."""
        model = self._model
        assert model is not None
        walk = min(walks, key=lambda walk: model.reading_s(walk.seq))
        spent_s = model.reading_s(walk.seq) + (self._costs.round_s(1) or self._costs.plain_s(1))
        if spent_s <= self._probing.left_s:
            self._probing.spend(self._probing.left_s)
            walk.rewind(0)
            model.extend([walk], num_rows, most=1)

    def _num_expected(self, seq: Sequence, quantile: float = 0.5) -> float:
        """Tokens a sequence is expected to say yet, the one that ends it included."""
        first = seq.token_ids[seq.num_prompt_tokens] if seq.num_output_tokens else None
        return min(
            self._lengths.remaining(first, seq.num_output_tokens, quantile), seq.max_total_tokens - seq.num_tokens
        )

    def _learn(self, seq: Sequence, token_ids: list[int], *, follows_output: bool) -> None:
        """Remember what a sequence says next, and how long it got when that ends it."""
        if follows_output and self._has_lookup:
            self._memory.learn(seq.cache_salt, seq.token_ids[-SIZES[0] :].tolist(), token_ids)
        num_tokens = seq.num_output_tokens + len(token_ids)
        if token_ids[-1] in seq.params.stop_token_ids or num_tokens >= seq.params.max_tokens:
            first = seq.token_ids[seq.num_prompt_tokens] if seq.num_output_tokens else token_ids[0]
            self._lengths.observe(first, num_tokens)

    def _judge(self, walk: Walk, token_ids: list[int]) -> None:
        """Guesses up to the first wrong one were put to the test, used as drafts or not."""
        num_right = self._judge_chain(walk.guesses, token_ids)
        num_kept = walk.num_kept
        if walk.dropped and num_kept <= num_right:
            self._judge_chain(walk.dropped, token_ids[num_kept:])

    def _judge_chain(self, guesses: SequenceOf[Guess], token_ids: list[int]) -> int:
        """How many of the guesses are right."""
        for count, (guess, token_id) in enumerate(zip(guesses, token_ids, strict=False)):
            was_right = guess.token_id == token_id
            self._record.observe(guess.kind, was_right=was_right)
            if is_by_model(guess.kind):
                self._record.observe(MODEL, was_right=was_right)
            if not was_right:
                return count
        return min(len(guesses), len(token_ids))

    def _account(self, batch: ScheduledBatch, step: _Step, num_tokens: SequenceOf[int], seconds: float) -> None:
        """Enter what a pure decode step cost and what it was worth."""
        num_rows = len(batch.rows)
        num_drafts = sum(len(row.draft_token_ids) for row in batch.rows)
        if num_drafts:
            self._costs.observe_verification(num_rows, num_drafts, seconds - step.drafting_s)
            self._num_since_plain[num_rows] = self._num_since_plain.get(num_rows, 0) + 1
        else:
            self._costs.observe_plain(num_rows, seconds - step.drafting_s)
            self._num_since_plain[num_rows] = 0
        gained_s = 0.0
        if step.is_open and (plain_s := self._costs.plain_s(num_rows)) > 0.0:
            # A step without drafts is worth itself; thinking about them in vain is what it lost.
            token_s = plain_s / num_rows
            spent_s = seconds if num_drafts else plain_s + step.drafting_s
            self._judge_kinds(batch, step, num_tokens, token_s=token_s, spent_s=spent_s / num_rows)
            if num_drafts or step.with_model:
                gained_s = self._judge_step(step, num_rows, token_s * sum(num_tokens), spent_s)
            else:
                self._thinking.spend(step.drafting_s)
        self._thinking.earn(seconds, gained_s)

    def _judge_kinds(
        self, batch: ScheduledBatch, step: _Step, num_tokens: SequenceOf[int], *, token_s: float, spent_s: float
    ) -> None:
        """What thinking was worth for each row that was thought about; `spent_s` for each of them."""
        for row, is_open, count in zip(batch.rows, step.is_open, num_tokens, strict=True):
            if is_open:
                self._kinds.observe(_first_token(row.seq), token_s * count, spent_s)

    def _judge_step(self, step: _Step, num_rows: int, worth_s: float, spent_s: float) -> float:
        """Learn from a step with drafts; the seconds that it gained."""
        self._guard(num_rows, with_model=step.with_model).observe(worth_s, spent_s)
        share = min(worth_s / spent_s / step.gain, _MOST_KEPT)
        key = step.with_model, num_rows.bit_length()
        self._kept[key] = _KEPT_DECAY * self._kept.get(key, 1.0) + (1.0 - _KEPT_DECAY) * share
        return worth_s - spent_s

    def _kept_share(self, num_rows: int, *, with_model: bool = False) -> float:
        return self._kept.get((with_model, num_rows.bit_length()), 1.0)

    def _guard(self, num_rows: int, *, with_model: bool) -> Guard:
        return self._guards.setdefault((with_model, num_rows.bit_length()), Guard())


def _first_token(seq: Sequence) -> int:
    """How a sequence's answer began; its last prompt token while there is none."""
    return seq.token_ids[min(seq.num_prompt_tokens, seq.num_tokens - 1)]
