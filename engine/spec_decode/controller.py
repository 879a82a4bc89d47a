"""The switch: which rows get how many drafts from where in each step, decided by what was measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf

from engine.forecast.step_cost import StepCosts
from engine.models.multi_step import MultiStep, StepTaken
from engine.spec_decode.follow_up import NUM_REACHED, MultiStepPlanner
from engine.spec_decode.proposers.acceptance_stats import AcceptanceStats
from engine.spec_decode.proposers.draft_model_proposer import DraftingModel, DraftModelProposer
from engine.spec_decode.proposers.medusa import HeadPredictions, MedusaProposer
from engine.spec_decode.proposers.ngram import LookupPosition, NgramProposer
from engine.spec_decode.statistics.prospects import (
    FEW_TOKENS,
    FEWEST_TOKENS,
    MIN_GAIN,
    Prospect,
    Prospects,
    first_of_answers,
)
from engine.spec_decode.step_books import StepBooks, ThoughtStep
from engine.spec_decode.walk_choice import WalkChoice
from engine.step.batch import RowResult, ScheduledBatch
from engine.step.drafting import DraftRequest
from engine.step.hidden_states import Chosen
from engine.step.sequence import Sequence

_LEAST_CHANCE = 0.1
"""Guesses end where all of them together are right more rarely."""
_LENGTH_MARGIN = 1.5
"""How many times the tokens expected yet a row may be drafted, for lengths vary."""
_MOST_PUT_OFF = 32
"""Answers to be remembered when there is time; the oldest are not."""


class SpeculationController:
    """Drafts for pure decode steps from lookup, heads and a draft model, and the books on what each is worth.

    Decisions depend on time measured; answers do not, for a draft only stands where it is what would have been said.
    """

    def __init__(
        self,
        costs: StepCosts,
        *,
        num_speculative_tokens: int,
        clock: Callable[[], float],
        has_lookup: bool,
        outlook: MedusaProposer | None = None,
        rounds: MultiStep | None = None,
        model: DraftingModel | None = None,
        model_reach: int = 0,
    ) -> None:
        """`has_lookup`: whether drafts are looked up in the text and in earlier answers; `outlook`: asks heads beside
        that; `rounds`: may follow a step in which these look ahead; `model_reach`: the most tokens the draft model can
        read of one sequence."""
        self.num_speculative_tokens = num_speculative_tokens
        self._costs = costs
        self._clock = clock
        self._record = AcceptanceStats()
        self._lookup = NgramProposer(self._record) if has_lookup else None
        self._outlook = outlook if has_lookup else None
        self._follow_up: MultiStepPlanner | None = None
        if rounds is not None and self._lookup is not None and self._outlook is not None:
            self._follow_up = MultiStepPlanner(
                rounds,
                self._lookup,
                self._record,
                num_speculative_tokens=num_speculative_tokens,
                few_tokens=FEW_TOKENS,
                length_margin=_LENGTH_MARGIN,
            )
        self.num_reached = NUM_REACHED if self._follow_up is not None else 0
        drafting: DraftModelProposer | None = None
        if model is not None:
            drafting = DraftModelProposer(model, self._lookup, self._record, costs, clock, reach=model_reach)
        self._prospects = Prospects(
            costs,
            clock,
            has_lookup=has_lookup,
            has_heads=self._outlook is not None,
            has_model=lambda: self._walks.has_model,
        )
        if self._outlook is not None:
            self._outlook.is_promising = self._prospects.are_heads_wanted
            self._outlook.on_chosen = self._begin
        self._walks = WalkChoice(
            self._lookup, drafting, self._record, costs, self._prospects.num_expected, least_gain=MIN_GAIN
        )
        self._books = StepBooks(costs, self._prospects)
        self._step: ThoughtStep | None = None
        """Of the step that is being computed; None: nothing was thought about it."""
        self._is_asked = False
        """Whether it is a pure decode step."""
        self._ahead_s = 0.0
        """What looking ahead took within the last step."""
        # The rows of a step in which no answer is open to drafts, as most likely of the next one.
        self._closed: list[Sequence] = []
        self._num_closed = 0
        self._is_plain = False
        """Whether nothing is guessed in the rounds that follow the step under way."""
        self._following_s = 0.0
        """What ordering rounds behind the step's prompts took."""
        self._books_s = 0.0
        """What entering took what the last such step was worth."""
        self._put_off: deque[Sequence] = deque(maxlen=_MOST_PUT_OFF)

    def wants(self, seqs: SequenceOf[Sequence]) -> bool:
        """Whether drafts may pay in a pure decode step of these rows."""
        self._is_asked = True
        self._step = None
        if self._num_closed and list(seqs) == self._closed:
            self._num_closed -= 1
            return False
        prospects = self._prospects
        self._close([] if prospects.is_open(seqs) else seqs)
        prospect = None if self._closed else prospects.of_step(seqs)
        if prospect is not None and self._is_end_said(prospect, seqs):
            self._prospects.asked_in_vain(seqs)
            prospect = None
        if prospect is not None:
            self._step = ThoughtStep(prospect, prospect.thinking_s)
        return prospect is not None

    def goes_on(self, seqs: SequenceOf[Sequence]) -> bool:
        """Whether rounds without guesses may follow a step in which no answer is open to drafts; now and then none do,
        so that it is known what such a step takes."""
        rounds, outlook = self._follow_up, self._outlook
        if rounds is None or outlook is None or not self._closed:
            return False
        if not self._books.may_pass_by():
            return False
        self._is_plain = True
        return rounds.suits(len(seqs), self._costs.plain_s(len(seqs))) and outlook.glance(seqs, asks_heads=False)

    def foresee(self, seqs: SequenceOf[Sequence]) -> bool:
        """Have heads look ahead within a step that holds prompts, where rounds behind it or the next step will mostly
        ask them; whether rounds may follow."""
        started_at = self._clock()
        self._close([])
        outlook = self._outlook
        if outlook is None or not seqs:
            return False
        rounds = self._follow_up
        if rounds is not None and rounds.suits(len(seqs), self._costs.plain_s(len(seqs))):
            self._prospects.looks.step_ended()
            begun = [seq for seq in seqs if not seq.num_output_tokens]
            self._is_plain = not rounds.allows_behind_prompts(begun)
            if self._is_plain:
                for seq in begun:
                    self._prospects.trials.shut(seq)
            if outlook.glance(seqs, asks_heads=not self._is_plain):
                self._following_s = self._clock() - started_at
                return True
        if self._prospects.is_look_promising(seqs) and outlook.glance(seqs):
            self._prospects.looks.foresee(first_of_answers(len(seqs)))
        return False

    def follow(self, requests: SequenceOf[DraftRequest]) -> None:
        """Have rounds follow a step of which that was foreseen."""
        assert self._follow_up is not None, "nobody said that they may"
        started_at = self._clock()
        costs = self._lookup_costs(len(requests))
        if self._is_plain:
            self._follow_up.order_plain(requests, costs)
            return
        expected = [self._prospects.num_expected(request.seq) for request in requests]
        self._follow_up.order_behind_prompts(requests, expected, costs, _least_chance(costs, len(requests)))
        self._following_s += self._clock() - started_at

    def draft(self, requests: SequenceOf[DraftRequest], budget: int) -> list[tuple[int, ...]]:
        """Drafts for each row of the step asked about, at most `budget` in all; empty where they would not pay."""
        step = self._step
        assert step is not None, "asked for drafts that were not wanted"
        started_at = self._clock()
        drafts = self._choose(step, requests, budget)
        if step.with_heads and not any(drafts):
            self._prospects.asked_in_vain([request.seq for request in requests])
        if self._outlook is not None and step.prospect.may_look_ahead:
            self._glance(step, self._outlook, [request.seq for request in requests], drafts)
            if step.has_glanced and step.found is not None and self._follow_up is not None and any(drafts):
                self._follow_up.order(step.found, requests, step.prospect.expected, self._lookup_costs(len(requests)))
        step.drafting_s += self._clock() - started_at
        return drafts

    def _glance(
        self,
        step: ThoughtStep,
        outlook: MedusaProposer,
        seqs: SequenceOf[Sequence],
        drafts: SequenceOf[tuple[int, ...]],
    ) -> None:
        """Have heads look ahead within this step where some answer most likely goes on behind it."""
        if not self._prospects.are_looks_used(len(seqs)):
            return
        for num_expected, of_row in zip(step.prospect.expected, drafts, strict=True):
            if num_expected - len(of_row) - 1 >= FEWEST_TOKENS:
                step.has_glanced = outlook.glance(seqs)
                return

    def observe(self, batch: ScheduledBatch, results: SequenceOf[RowResult], seconds: float) -> None:
        """Learn from a step that took `seconds`, drafting included; next to nothing where nothing was thought."""
        is_unseen = self._is_asked and self._step is None and bool(self._closed)
        if is_unseen and (self._pass_by(batch, results, seconds) or self._books.skip(seconds)):
            self._is_asked = False
            return
        if self._put_off and self._prospects.thinking.left_s >= 0.0:
            started_at = self._clock()
            self.rest()
            self._prospects.charge(1, self._clock() - started_at)
        rounds = self._rounds_behind(batch, results)
        step, self._step = self._step, None
        is_decode, self._is_asked = self._is_asked, False
        if self._outlook is not None:
            # Looked ahead for the next step: its cost, not this one's.
            ahead_s, self._ahead_s = self._ahead_s, self._outlook.take_spent_s()
            seconds -= self._ahead_s
            if step is not None and step.with_heads:
                step.drafting_s += ahead_s
                seconds += ahead_s
            else:
                self._prospects.charge(len(batch.rows), ahead_s)
        self._walks.pass_time(seconds)
        if step is None:
            if is_decode:
                self._books.enter_plain(len(batch.rows), seconds)
            return
        started_at = self._clock()
        if step.found is not None and self._lookup is not None and not rounds:  # which have judged it
            self._lookup.judge(step.found, [result.token_ids for result in results])
        if step.walked is not None:
            for walk, result in zip(step.walked.walks, results, strict=True):
                self._walks.judge(walk, result.token_ids)
        later_s = sum(one.seconds for one in rounds[1:])
        num_tokens = [len(result.token_ids) for result in results]
        self._books.enter(batch, step, num_tokens, seconds, later_s=later_s, books_s=self._books_s)
        self._books_s = self._clock() - started_at

    def ended(self, seq: Sequence) -> None:
        """Remember how long an answer got, and what it said as soon as nobody waits to be told of its end."""
        self._prospects.ended(seq)
        if self._lookup is not None:
            self._put_off.append(seq)

    def rest(self) -> None:
        """Do what was put off: nobody waits for a step."""
        while self._put_off:
            seq = self._put_off.popleft()
            if self._lookup is not None:
                self._lookup.learn(seq)

    def _begin(self, chosen: Chosen) -> None:
        """Decide about answers that begin with these tokens, before anybody waits for their next ones."""
        if any(not seq.num_output_tokens for seq, _ in chosen):
            is_any_open = self._prospects.begin(chosen)
            self._close([] if is_any_open else [seq for seq, _ in chosen])

    def _close(self, seqs: SequenceOf[Sequence]) -> None:
        """Of a step of these rows nobody wants to know anything; none: of others somebody may."""
        self._closed = list(seqs)
        self._num_closed = self._prospects.trials.num_closed(seqs) if seqs else 0
        if self._outlook is not None:
            self._outlook.is_asleep = bool(seqs)

    def _is_end_said(self, prospect: Prospect, seqs: SequenceOf[Sequence]) -> bool:
        """Whether heads looked ahead already and saw the end of every answer, which is no draft."""
        if self._outlook is None or not prospect.may_look_ahead or prospect.may_ask:
            return False
        are_near_end = [num_tokens <= FEW_TOKENS for num_tokens in prospect.expected]
        return self._outlook.says_end(seqs, are_near_end, self._record.chance)

    def _choose(self, step: ThoughtStep, requests: SequenceOf[DraftRequest], budget: int) -> list[tuple[int, ...]]:
        """Of every row's guesses those that are worth verifying."""
        num_rows = len(requests)
        prospect = step.prospect
        places = [
            _place(request, budget // num_rows, num_tokens)
            for request, num_tokens in zip(requests, prospect.expected, strict=True)
        ]
        asking = self._walks.asking(places) if prospect.may_ask else []
        has_room = any(place.limit > 0 for place in places)
        if not asking and not (has_room and (prospect.may_look_up or prospect.may_look_ahead)):
            return [()] * num_rows
        costs = self._lookup_costs(num_rows)
        least_chance = _least_chance(costs, num_rows)
        ahead = self._say_ahead(step, places) if prospect.may_look_ahead else None
        if asking or self._lookup is None or any(request.seq.grammar is not None for request in requests):
            step.walked = self._walks.choose(
                places,
                asking,
                least_chance,
                may_guess=prospect.may_look_up or ahead is not None,
                kept=(self._books.kept_share(num_rows, "lookup"), self._books.kept_share(num_rows, "model")),
                ahead=ahead,
            )
            return step.walked.drafts()
        step.found = self._lookup.choose(places, least_chance, costs, MIN_GAIN, ahead)
        return step.found.drafts()

    def _pass_by(self, batch: ScheduledBatch, results: SequenceOf[RowResult], seconds: float) -> bool:
        """Whether rounds followed a step that nobody thought about; all there is to learn is that time passed."""
        num_further = max(0, len(self._rounds_behind(batch, results)) - 1)
        if num_further:
            self._num_closed = max(0, self._num_closed - num_further)
            self._books.pass_by(seconds)
        return num_further > 0

    def _rounds_behind(self, batch: ScheduledBatch, results: SequenceOf[RowResult]) -> list[StepTaken]:
        """The last step and the rounds that followed it; none where it was not followed."""
        if self._follow_up is None or not self._follow_up.is_ordered:
            return []
        said = [(row.seq, result.token_ids) for row, result in zip(batch.rows, results, strict=True) if row.samples]
        # Its books take about as long as its orders did.
        spent_s = 2.0 * self._following_s + self._costs.ahead_s(len(said))
        return self._follow_up.take(said, self._lookup_costs(len(said)), spent_s)

    def _lookup_costs(self, num_rows: int) -> tuple[float, float, float]:
        """Of a step: without drafts, more with some, more for each."""
        cost = self._costs.lookup
        return cost.plain_s(num_rows), cost.drafting_s(num_rows), cost.per_draft_s(num_rows)

    def _say_ahead(self, step: ThoughtStep, places: SequenceOf[LookupPosition]) -> HeadPredictions | None:
        """What prediction heads say of a step's rows; None where they say nothing."""
        if self._outlook is None:
            return None
        started_at = self._clock()
        ahead = self._outlook.say([place.seq for place in places], [place.is_near_end for place in places])
        if ahead is not None:
            step.with_heads = True
            self._prospects.looks.asked()
            self._costs.observe_ahead(len(places), self._ahead_s + self._clock() - started_at)
        return ahead


def _least_chance(costs: tuple[float, float, float], num_rows: int) -> float:
    """Below it a draft earns less than the time it takes, whatever else the step does."""
    plain_s, _, each_s = costs
    return max(_LEAST_CHANCE, min(each_s * num_rows / plain_s, 1.0))


def _place(request: DraftRequest, share: int, num_expected: float) -> LookupPosition:
    """Where to look for how many guesses; `share`: this row's of the step's budget."""
    limit = min(request.num_speculative_tokens, share, int(_LENGTH_MARGIN * num_expected) - 1)
    return LookupPosition(request.seq, max(0, limit), num_expected <= FEW_TOKENS)
