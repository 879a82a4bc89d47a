"""The choice of draft tokens: acceptance rate times measured step cost, and one guard over both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import NamedTuple

import numpy as np

from engine.cpu.multi_step.draft_budget import plan
from engine.forecast.step_cost import StepCosts
from engine.models.multi_step import NUM_REACHED
from engine.models.prediction_heads import HeadPredictions
from engine.spec_decode.multi_step import MIN_GAIN as MIN_GAIN_WITHIN
from engine.spec_decode.multi_step import MultiStepPlanner
from engine.spec_decode.proposers.acceptance_stats import HEADS, MODEL, AcceptanceStats, first_by_heads
from engine.spec_decode.proposers.draft_model import DraftModelProposer
from engine.spec_decode.proposers.ngram import Costs, LookupPosition, NgramDrafts, NgramProposer
from engine.spec_decode.proposers.prediction import count_predicted
from engine.spec_decode.response_guard import ResponseGuard
from engine.step.drafting import DraftRequest, Proposal
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.sequence import Sequence
from engine.step.step_output import StepOutput

_MIN_GAIN = 1.2
"""Expected gain from which a step verifies draft tokens, for forecasts err, and proposing takes time."""
_LEAST_PROBABILITY = 0.1
"""Draft tokens end where all of them together are accepted more rarely."""
_PLAIN_EVERY = 64
"""Interval, in steps, of plain steps while draft tokens pay, which keep the plain step's time up to date."""
_TRIED_EVERY = 64
"""Number of steps after which a draft model or heads that do not seem to pay are tried again."""
_NUM_HEADS = 3
"""Number of tokens that heads are assumed to predict in the decision whether to run them."""
_READING_RATIO = 0.2
"""Reading a sequence's text may take the draft model this share of the time that its answer may take."""
_MOST_PUT_OFF = 16
"""Maximum number of answers whose n-grams are still to be stored; beyond it, each step stores one."""


class Proposers(NamedTuple):
    """The sources of draft tokens."""

    ngram: NgramProposer | None = None
    has_heads: bool = False
    """True if prediction heads run within steps; the more likely one of their tokens and lookup's is taken."""
    multi_step: MultiStepPlanner | None = None
    """Planner of the steps that may follow a step within which heads run."""
    draft_model: DraftModelProposer | None = None


class SpeculationController:
    """Controller of draft tokens in pure decode steps, and of steps that follow a step in the same call.

    Decisions depend on measured time, but outputs do not: a draft token only stands where the model chooses the same
    one.
    """

    def __init__(
        self,
        proposers: Proposers,
        stats: AcceptanceStats,
        costs: StepCosts,
        *,
        num_speculative_tokens: int,
        clock: Callable[[], float],
    ) -> None:
        """Draft at most `num_speculative_tokens` tokens a sequence; `costs` are of single steps."""
        self.num_speculative_tokens = num_speculative_tokens
        self._ngram, self._has_heads, self._multi_step, self._model = proposers
        self._stats = stats
        self._costs = costs
        self._clock = clock
        self._guard = ResponseGuard(clock)
        self._are_open: list[bool] = []
        """True for each sequence of the current step that is open to draft tokens."""
        self._follows = False
        """True if other steps may follow the current step."""
        self._found: NgramDrafts | None = None
        """Draft tokens of lookup for the current step."""
        self._prefixes: list[tuple[int, ...]] = []
        """Draft tokens of each sequence behind which lookup continues."""
        self._by_model: list[tuple[int, ...]] = []
        """Draft tokens of the draft model for the current step."""
        self._drafting_s = 0.0
        """Seconds that the draft model took for the current step."""
        self._num_since_plain: dict[int, int] = {}
        self._num_since_tried = 0
        # Last predictions of the heads; the index and the length of each sequence then.
        self._predictions: HeadPredictions | None = None
        self._predicted: dict[Sequence, tuple[int, int]] = {}
        self._put_off: deque[Sequence] = deque()

    def reach(self, seqs: SequenceOf[Sequence], *, is_decode: bool, may_follow: bool) -> int:
        """Return the number of tokens behind the next one for which these sequences can use blocks."""
        num_seqs = len(seqs)
        self._are_open = [self._guard.is_open(seq, num_seqs) for seq in seqs]
        self._follows = may_follow and self._multi_step is not None and self._multi_step.suits(seqs)
        self._found, self._by_model, self._drafting_s = None, [], 0.0
        drafts = self.num_speculative_tokens if is_decode and any(self._are_open) else 0
        return max(drafts, NUM_REACHED if self._follows else 0)

    def propose(self, requests: SequenceOf[DraftRequest], budget: int) -> Proposal:
        """Return the draft tokens of the step passed to `reach`, at most `budget` in all, and what follows it."""
        is_open = any(self._are_open)
        drafts = self._choose(requests, budget)
        if not self._follows:
            return Proposal(drafts, predicts=is_open and self._has_heads and self._do_heads_pay(len(requests)))
        assert self._multi_step is not None
        assert self._ngram is not None
        found = self._found
        if found is None:
            places = [LookupPosition(request.seq, self.num_speculative_tokens) for request in requests]
            costs = self._multi_step.costs.of_step(len(requests))
            found = self._ngram.nothing(places, _least_probability(costs, len(requests)))
        until = [request.max_tokens if one else 0 for request, one in zip(requests, self._are_open, strict=True)]
        return Proposal(drafts, is_open, self._multi_step.order(requests, found, until, is_speculative=is_open))

    def observe(self, scheduled: SchedulerOutput, output: StepOutput, seconds: float) -> None:
        """Update the statistics from a step that took `seconds`, drafting included."""
        chunks = [chunk for chunk in scheduled.chunks if chunk.samples]
        outputs = [
            result.token_ids for chunk, result in zip(scheduled.chunks, output.results, strict=True) if chunk.samples
        ]
        is_decode = len(chunks) == len(scheduled.chunks) and all(chunk.num_tokens == 1 for chunk in chunks)
        self._record_heads(chunks, outputs)
        self._predictions, self._predicted = output.predictions, {}
        for chunk, token_ids in zip(chunks, outputs, strict=True):
            if token_ids:
                self._predicted[chunk.seq] = len(self._predicted), chunk.seq.num_tokens + len(token_ids)
                if not chunk.seq.num_output_tokens:
                    # A prompt's time is not the response's.
                    self._guard.begin(chunk.seq, seconds if is_decode else output.later_s, num_generated=not is_decode)
        if output.num_steps > 1:
            assert self._multi_step is not None
            self._count_predicted_together(scheduled, output)
            if scheduled.predicts:  # a step without proposers takes less
                self._multi_step.observe(len(chunks), output.steps[1:])
        else:
            self._record_acceptance(outputs)
            self._count_predicted(chunks, outputs)
            if is_decode:
                self._observe_decode(scheduled, seconds - self._drafting_s)
        self._found, self._by_model = None, []
        self._remember(at_most=_MOST_PUT_OFF)

    def ended(self, seq: Sequence) -> None:
        """Record the duration of a response; its n-grams are stored later, while no client waits for a step."""
        self._guard.end(seq)
        if self._ngram is not None:
            self._put_off.append(seq)

    def rest(self) -> None:
        """Store the n-grams of ended answers while no step is to be computed."""
        self._remember(at_most=0)

    def _remember(self, at_most: int) -> None:
        """Store the n-grams of ended answers until at most `at_most` answers remain."""
        while self._ngram is not None and len(self._put_off) > at_most:
            self._ngram.learn(self._put_off.popleft())

    def _choose(self, requests: SequenceOf[DraftRequest], budget: int) -> list[tuple[int, ...]]:
        """Return the draft tokens of every sequence that are worth verifying."""
        num_seqs = len(requests)
        limits = [
            min(request.num_speculative_tokens, budget // num_seqs) if is_open else 0
            for request, is_open in zip(requests, self._are_open, strict=True)
        ]
        if self._follows and self._multi_step is not None:
            costs, least_gain = self._multi_step.costs.of_step(num_seqs), MIN_GAIN_WITHIN
            is_due = False  # plain steps follow anyway
        else:
            costs, least_gain = self._costs.of_step(num_seqs), _MIN_GAIN
            is_due = self._num_since_plain.get(num_seqs, 0) >= _PLAIN_EVERY
        if not any(limits) or costs[0] <= 0.0 or is_due:
            return [()] * num_seqs
        found = None
        if self._ngram is not None:
            places = [_position_of(request.seq, limit) for request, limit in zip(requests, limits, strict=True)]
            self._prefixes = [place.prefix for place in places]
            predictions = self._predictions_of([request.seq for request in requests])
            least_probability = _least_probability(costs, num_seqs)
            found = self._found = self._ngram.choose(places, least_probability, costs, least_gain, predictions)
        gain = 1.0 if found is None else found.gain
        if self._model is not None and self._draft_with_model(self._model, requests, limits, gain):
            return self._by_model
        if found is None:
            return [()] * num_seqs
        return [
            _allowed(request.seq, prefix + drafts)
            for request, prefix, drafts in zip(requests, self._prefixes, found.token_ids(), strict=True)
        ]

    def _predictions_of(self, seqs: SequenceOf[Sequence]) -> HeadPredictions | None:
        """Return the heads' predictions for the newest tokens of these sequences; None without any."""
        if self._predictions is None:
            return None
        places = [self._predicted.get(seq, (-1, -1)) for seq in seqs]
        order = [chunk if length == seq.num_tokens else -1 for seq, (chunk, length) in zip(seqs, places, strict=True)]
        if max(order) < 0:
            return None
        are_unknown = np.array(order) < 0
        tokens, kinds = self._predictions.tokens[order], self._predictions.kinds[order]
        tokens[are_unknown] = -1
        firsts = [first_by_heads(is_drawn=seq.params.temperature > 0.0) for seq in seqs]
        return HeadPredictions(tokens, kinds + np.array(firsts)[:, None])

    def _do_heads_pay(self, num_seqs: int) -> bool:
        """Return whether heads that are as often right as lately pay, or are due for another trial."""
        self._num_since_tried += 1
        acceptance_rates = np.full((num_seqs, _NUM_HEADS), self._stats.acceptance_rate(HEADS))
        counts = np.full(num_seqs, _NUM_HEADS)
        gain = plan(acceptance_rates, counts, num_seqs, *self._costs.of_step(num_seqs), _MIN_GAIN, counts.copy())
        if gain <= 1.0 and self._num_since_tried < _TRIED_EVERY:
            return False
        self._num_since_tried = 0
        return True

    def _draft_with_model(
        self, model: DraftModelProposer, requests: SequenceOf[DraftRequest], limits: list[int], gain: float
    ) -> bool:
        """Run the draft model for the step's draft tokens where the expected gain exceeds that of other proposers."""
        num_seqs = len(requests)
        token_s = self._costs.plain_s(num_seqs) / num_seqs
        most = [
            limit if model.has_room(request.seq, limit) and self._is_read_in_time(model, request.seq, token_s) else 0
            for request, limit in zip(requests, limits, strict=True)
        ]
        counts = np.zeros(num_seqs, dtype=np.int64)
        if not any(most):
            return False
        acceptance_rates = np.full((num_seqs, max(most)), self._stats.acceptance_rate(MODEL))
        plain_s, fixed_s, each_s = self._costs.of_step(num_seqs, with_model=True)
        expected_gain = plan(acceptance_rates, np.array(most), num_seqs, plain_s, fixed_s, each_s, _MIN_GAIN, counts)
        self._num_since_tried += 1
        if expected_gain <= gain:
            if self._num_since_tried < _TRIED_EVERY:
                return False
            counts[:] = np.minimum(most, 1)
        self._num_since_tried = 0
        seqs = [request.seq for request in requests]
        started_at = self._clock()
        num_unread = sum(model.num_missing_tokens(seq) for seq, count in zip(seqs, counts, strict=True) if count)
        drafts = model.propose(seqs, counts.tolist())
        self._drafting_s = self._clock() - started_at
        self._costs.observe_drafting(int(np.count_nonzero(counts)), int(counts.max()), num_unread, self._drafting_s)
        self._by_model = [_allowed(seq, of_seq) for seq, of_seq in zip(seqs, drafts, strict=True)]
        return True

    def _is_read_in_time(self, model: DraftModelProposer, seq: Sequence, token_s: float) -> bool:
        """Return whether reading what the draft model has missed is a small part of what the answer may take."""
        reading_s = model.num_missing_tokens(seq) * self._costs.read_token_s
        return reading_s <= _READING_RATIO * token_s * (seq.max_total_tokens - seq.num_tokens)

    def _record_acceptance(self, outputs: SequenceOf[SequenceOf[int]]) -> None:
        """Update the acceptance rates of the draft tokens of a single step from its output."""
        if self._found is not None and self._ngram is not None:
            behind = [
                token_ids[len(prefix) :] if tuple(token_ids[: len(prefix)]) == prefix else ()
                for prefix, token_ids in zip(self._prefixes, outputs, strict=True)
            ]
            self._ngram.record_acceptance(self._found, behind)
        for drafts, token_ids in zip(self._by_model, outputs, strict=False):
            for draft, token_id in zip(drafts, token_ids, strict=False):
                self._stats.observe(MODEL, was_right=draft == token_id)
                if draft != token_id:
                    break

    def _count_predicted(self, chunks: SequenceOf[ScheduledChunk], outputs: SequenceOf[SequenceOf[int]]) -> None:
        """Count the draft tokens of a single step that came from predictions, unless a draft model made the step's."""
        if self._found is None or self._by_model:
            return
        for index, (chunk, token_ids) in enumerate(zip(chunks, outputs, strict=True)):
            if chunk.seq.prediction is not None:
                count_predicted(self._found, index, chunk, len(self._prefixes[index]), max(0, len(token_ids) - 1))

    def _count_predicted_together(self, scheduled: SchedulerOutput, output: StepOutput) -> None:
        """Count the draft tokens that came from predictions in steps that followed one another."""
        for chunk, result in zip(scheduled.chunks, output.results, strict=True):
            if chunk.seq.prediction is not None and result.predicted is not None:
                chunk.seq.prediction.count(*result.predicted)

    def _record_heads(self, chunks: SequenceOf[ScheduledChunk], outputs: SequenceOf[SequenceOf[int]]) -> None:
        """Update the acceptance rate of the first head's predictions for the previous step."""
        if self._predictions is None:
            return
        for chunk, token_ids in zip(chunks, outputs, strict=True):
            index, length = self._predicted.get(chunk.seq, (-1, -1))
            if token_ids and length == chunk.seq.num_tokens:
                self._stats.observe(HEADS, was_right=int(self._predictions.tokens[index, 0]) == token_ids[0])

    def _observe_decode(self, scheduled: SchedulerOutput, seconds: float) -> None:
        """Record the cost of a decode step that was scheduled alone."""
        num_seqs = len(scheduled.chunks)
        num_drafts = sum(len(chunk.draft_token_ids) for chunk in scheduled.chunks)
        self._num_since_plain[num_seqs] = self._num_since_plain.get(num_seqs, 0) + 1 if num_drafts else 0
        self._costs.observe(num_seqs, num_drafts, seconds)
        if self._multi_step is not None and not self._follows:
            # A busy start must not keep steps from following one another for good.
            self._multi_step.costs.observe(num_seqs, num_drafts, seconds)


def _least_probability(costs: Costs, num_seqs: int) -> float:
    """Return the acceptance probability below which a draft token costs more time than it saves."""
    plain_s, _, each_s = costs
    return max(_LEAST_PROBABILITY, min(each_s * num_seqs / plain_s, 1.0))


def _position_of(seq: Sequence, limit: int) -> LookupPosition:
    """Return the position to look up, behind the only text that a grammar allows, if there is one.

    Tokens that a grammar forces are nearly always right.
    """
    forced = seq.grammar.forced_tokens()[:limit] if limit and seq.grammar is not None else ()
    ends = [index for index, token_id in enumerate(forced) if token_id in seq.params.stop_token_ids]
    return LookupPosition(seq, limit, tuple(forced[: ends[0]] if ends else forced))


def _allowed(seq: Sequence, drafts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the draft tokens that a sequence's grammar allows."""
    return drafts if seq.grammar is None or not drafts else drafts[: seq.grammar.validate(drafts)]
