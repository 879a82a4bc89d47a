"""The switch: which rows get how many drafts from where in each step, decided by what was measured."""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

from engine.core.batch import RowResult, ScheduledBatch
from engine.core.drafting import DraftRequest
from engine.core.sequence import Sequence
from engine.speculation.guard import Guard
from engine.speculation.ngram import Lookup, NgramProposer
from engine.speculation.planner import Candidate, StepCost, expected_gain, plan_drafts
from engine.speculation.step_cost import StepCosts
from engine.speculation.track_record import FORCED, MODEL, Kind, TrackRecord

logger = logging.getLogger(__name__)

_PLAIN_EVERY = 32
"""While speculation pays, one step in so many is plain, so that it is known what plain steps cost now."""
_CATCH_UP_RATIO = 0.15
"""Reading a sequence's text may take the draft model this share of the sequence's expected remaining time."""
_PROBE_RATIO = 0.01
"""Share of the time that may go into finding out whether the draft model pays after all."""
_PROBE_DRAFTS = 2
_MIN_GAIN = 1.1
"""Expected gain from which a step speculates, for forecasts err."""


class DraftModel(Protocol):
    """A small model that guesses what the large one will say."""

    def num_missing_tokens(self, seq: Sequence) -> int:
        """Tokens of the sequence it has not read yet."""
        ...

    def draft(self, rows: SequenceOf[tuple[Sequence, int]]) -> list[tuple[int, ...]]:
        """Up to so many drafts for each row, at least one. May raise anything."""
        ...


@dataclass(frozen=True, slots=True)
class _Plan:
    """Drafts for each row: where from, how many, and what they are expected to gain."""

    kinds: list[Kind]
    counts: list[int]
    gain: float
    with_model: bool


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
        lookup: NgramProposer | None,
        model: DraftModel | None = None,
        model_reach: int = 0,
    ) -> None:
        """`model_reach`: the most tokens the draft model can read of one sequence."""
        self.max_drafts = max_drafts
        self._costs = costs
        self._clock = clock
        self._lookup = lookup
        self._model = model
        self._model_reach = model_reach
        self._record = TrackRecord()
        self._guards: dict[tuple[bool, int], Guard] = {}
        self._num_since_plain: dict[int, int] = {}
        self._allowance_s = 0.0
        self._drafting_s = 0.0
        self._with_model = False

    def draft(self, requests: SequenceOf[DraftRequest], budget: int) -> list[tuple[int, ...]]:
        """Drafts for each row of a pure decode step, at most `budget` in all; empty where they would not pay."""
        self._drafting_s = 0.0
        for request in requests:
            self._record.settle(request.seq)
        lookups = [self._look_up(request) for request in requests]
        plan = self._plan(requests, lookups)
        if plan is None:
            return [()] * len(requests)
        self._with_model = plan.with_model
        return self._make(requests, lookups, plan, _within(plan.counts, budget))

    def observe(self, batch: ScheduledBatch, results: SequenceOf[RowResult], seconds: float) -> None:
        """Learn from a step that took `seconds`, drafting included."""
        self._allowance_s += _PROBE_RATIO * seconds
        if any(row.num_tokens != 1 or not row.samples for row in batch.rows):
            return
        num_rows = len(batch.rows)
        num_drafts = sum(len(row.draft_token_ids) for row in batch.rows)
        if not num_drafts:
            self._costs.observe_plain(num_rows, seconds - self._drafting_s)
            self._num_since_plain[num_rows] = 0
            return
        self._num_since_plain[num_rows] = self._num_since_plain.get(num_rows, 0) + 1
        self._costs.observe_verification(num_rows, num_drafts, seconds - self._drafting_s)
        plain_s = self._costs.plain_s(num_rows)
        if plain_s > 0.0:
            num_tokens = sum(len(result.token_ids) for result in results)
            self._guard(num_rows, self._with_model).observe(plain_s * num_tokens / num_rows, seconds)

    def _look_up(self, request: DraftRequest) -> Lookup | None:
        """What a grammar forces, or else what the text suggests as far as the grammar allows it."""
        if self._lookup is None or not request.max_drafts:
            return None
        grammar = request.seq.grammar
        forced = grammar.forced_tokens()[: request.max_drafts] if grammar is not None else []
        found = Lookup(FORCED, forced) if forced else self._lookup.look_up(request.seq.token_ids, request.max_drafts)
        if found is None:
            return None
        if grammar is not None and not forced:
            found = Lookup(found.num_matched, found.token_ids[: grammar.validate(found.token_ids)])
        found = Lookup(found.num_matched, _up_to_end(found.token_ids, request.seq.params.stop_token_ids))
        if not found.token_ids:
            return None
        self._record.guess(request.seq, found.num_matched, found.token_ids)
        return found

    def _plan(self, requests: SequenceOf[DraftRequest], lookups: SequenceOf[Lookup | None]) -> _Plan | None:
        """The most profitable way to draft; None: a plain step."""
        num_rows = len(requests)
        if self._num_since_plain.get(num_rows, 0) >= _PLAIN_EVERY:
            return None
        plans = [self._plan_lookup(requests, lookups)]
        if self._model is not None:
            plans.append(self._plan_model(requests, lookups, self._model))
        for plan in sorted(plans, key=lambda plan: -plan.gain):
            if any(plan.counts) and self._guard(num_rows, plan.with_model).allows():
                return plan
        return self._probe(requests, self._model) if self._model is not None else None

    def _plan_lookup(self, requests: SequenceOf[DraftRequest], lookups: SequenceOf[Lookup | None]) -> _Plan:
        kinds = [MODEL if found is None else found.num_matched for found in lookups]
        candidates = [
            Candidate(0.0, 0)
            if found is None
            else Candidate(self._record.acceptance(request.seq, found.num_matched), len(found.token_ids))
            for request, found in zip(requests, lookups, strict=True)
        ]
        return _planned(kinds, candidates, self._costs.lookup, with_model=False)

    def _plan_model(
        self, requests: SequenceOf[DraftRequest], lookups: SequenceOf[Lookup | None], model: DraftModel
    ) -> _Plan:
        """The draft model's drafts, and lookups for rows where these have proved better."""
        kinds: list[Kind] = []
        candidates = []
        for request, found in zip(requests, lookups, strict=True):
            candidate = self._model_candidate(request, len(requests), model)
            kinds.append(MODEL)
            if found is not None:
                acceptance = self._record.acceptance(request.seq, found.num_matched)
                if acceptance >= candidate.acceptance:
                    kinds[-1], candidate = found.num_matched, Candidate(acceptance, len(found.token_ids))
            candidates.append(candidate)
        if MODEL not in kinds:
            return _Plan(kinds, [0] * len(kinds), 1.0, True)
        return _planned(kinds, candidates, self._costs.model, with_model=True)

    def _model_candidate(self, request: DraftRequest, num_rows: int, model: DraftModel) -> Candidate:
        """What the draft model promises for a row; nothing when reading its text would take too long."""
        if request.seq.num_tokens + request.max_drafts > self._model_reach:
            return Candidate(0.0, 0)
        remaining_s = request.num_expected_tokens * self._costs.plain_s(num_rows) / num_rows
        if self._catch_up_s(request.seq, model) > _CATCH_UP_RATIO * remaining_s:
            return Candidate(0.0, 0)
        return Candidate(self._record.acceptance(request.seq, MODEL), request.max_drafts)

    def _catch_up_s(self, seq: Sequence, model: DraftModel) -> float:
        # After a step a few tokens are always new; they are read along with the first draft.
        num_missing = model.num_missing_tokens(seq) - self.max_drafts - 1
        return max(0, num_missing) * self._costs.read_token_s

    def _probe(self, requests: SequenceOf[DraftRequest], model: DraftModel) -> _Plan | None:
        """A few drafts of a model that does not seem to pay, when enough time has been saved up for them."""
        num_rows = len(requests)
        cost = self._costs.model
        missing_s = [self._catch_up_s(request.seq, model) for request in requests]
        cheapest = min(range(num_rows), key=missing_s.__getitem__)
        request = requests[cheapest]
        has_room = _PROBE_DRAFTS <= request.max_drafts <= self._model_reach - request.seq.num_tokens
        if not has_room or cost.plain_s(num_rows) <= 0.0:
            return None
        probe_s = cost.drafting_s(num_rows) + _PROBE_DRAFTS * num_rows * cost.per_draft_s(num_rows)
        probe_s += missing_s[cheapest]
        if probe_s > self._allowance_s:
            return None
        self._allowance_s = 0.0
        counts = [_PROBE_DRAFTS if index == cheapest else 0 for index in range(num_rows)]
        return _Plan([MODEL] * num_rows, counts, 1.0, True)

    def _make(
        self,
        requests: SequenceOf[DraftRequest],
        lookups: SequenceOf[Lookup | None],
        plan: _Plan,
        counts: list[int],
    ) -> list[tuple[int, ...]]:
        drafts: list[tuple[int, ...]] = [()] * len(requests)
        asking = []
        for index, (kind, count, found) in enumerate(zip(plan.kinds, counts, lookups, strict=True)):
            if count and kind == MODEL:
                asking.append(index)
            elif count and found is not None:
                drafts[index] = tuple(found.token_ids[:count])
        if asking:
            made = self._ask_model([(requests[index].seq, counts[index]) for index in asking])
            for index, token_ids in zip(asking, made, strict=True):
                drafts[index] = token_ids
                self._record.guess(requests[index].seq, MODEL, token_ids)
        return drafts

    def _ask_model(self, rows: list[tuple[Sequence, int]]) -> list[tuple[int, ...]]:
        assert self._model is not None
        num_unread = sum(self._model.num_missing_tokens(seq) for seq, _ in rows)
        started_at = self._clock()
        try:
            drafts = self._model.draft(rows)
        # Whatever a draft model raises, the large model goes on without it.
        except Exception:
            logger.exception("the draft model failed and is not asked again")
            self._model = None
            return [()] * len(rows)
        self._drafting_s = self._clock() - started_at
        self._costs.observe_drafting(len(rows), max(map(len, drafts)), num_unread, self._drafting_s)
        return drafts

    def _guard(self, num_rows: int, with_model: bool) -> Guard:
        return self._guards.setdefault((with_model, num_rows.bit_length()), Guard())


def _planned(kinds: list[Kind], candidates: list[Candidate], cost: StepCost, *, with_model: bool) -> _Plan:
    num_rows = len(candidates)
    counts = plan_drafts(candidates, num_rows, cost, min_gain=_MIN_GAIN)
    return _Plan(kinds, counts, expected_gain(candidates, counts, num_rows, cost), with_model)


def _up_to_end(token_ids: list[int], stop_token_ids: tuple[int, ...]) -> list[int]:
    """The tokens up to the first that ends an answer."""
    for index, token_id in enumerate(token_ids):
        if token_id in stop_token_ids:
            return token_ids[: index + 1]
    return token_ids


def _within(counts: list[int], budget: int) -> list[int]:
    """The counts, later rows cut so that all together stay within the budget."""
    kept = []
    for count in counts:
        kept.append(min(count, budget))
        budget -= kept[-1]
    return kept
