"""Which guesses to verify where a grammar has a say or a draft model may have one: row by row, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from engine.forecast.step_cost import StepCosts
from engine.spec_decode.proposers.acceptance_stats import AcceptanceStats
from engine.spec_decode.proposers.draft_model_proposer import DraftModelProposer
from engine.spec_decode.proposers.draft_token import MODEL, DraftToken, is_by_model
from engine.spec_decode.proposers.medusa import HeadPredictions
from engine.spec_decode.proposers.ngram import LookupPosition, NgramProposer
from engine.spec_decode.proposers.walk import Walk
from engine.spec_decode.statistics.allowance import TimeAllowance
from engine.spec_decode.statistics.planner import DraftPlan, plan_drafts
from engine.step.sequence import Sequence

_PROBE_RATIO = 0.003
"""Share of the time that may go into finding out whether the draft model pays after all."""
_READING_RATIO = 0.2
"""Reading a sequence's text may take the draft model this share of the sequence's expected remaining time."""


@dataclass(slots=True)
class Walked:
    """Where the guesses of a step led."""

    walks: list[Walk]
    counts: list[int] = field(default_factory=list)
    """How many guesses of each row are worth verifying."""
    gain: float = 1.0
    """Expected tokens per second as a multiple of those without drafts."""
    with_model: bool = False
    """Whether the draft model was asked because it promised more."""

    def drafts(self) -> list[tuple[int, ...]]:
        """What is worth verifying."""
        return [tuple(walk.token_ids[:count]) for walk, count in zip(self.walks, self.counts, strict=True)]


class WalkChoice:
    """Lookups and a draft model's guesses, by turns."""

    def __init__(
        self,
        lookup: NgramProposer | None,
        model: DraftModelProposer | None,
        record: AcceptanceStats,
        costs: StepCosts,
        expected: Callable[[Sequence, float], float],
        *,
        least_gain: float,
    ) -> None:
        """`expected`: a quantile of the tokens a sequence will say yet; `least_gain`: from which lookups are used."""
        self._lookup = lookup
        self._model = model
        self._record = record
        self._costs = costs
        self._expected = expected
        self._least_gain = least_gain
        self._probing = TimeAllowance(_PROBE_RATIO, math.inf)

    @property
    def has_model(self) -> bool:
        """Whether there is a draft model that works."""
        return self._model is not None and not self._model.is_broken

    def pass_time(self, seconds: float) -> None:
        """A step took so long; a share of it is saved up for trying the draft model again."""
        if self._model is not None:
            self._probing.earn(seconds)

    def asking(self, places: SequenceOf[LookupPosition]) -> list[int]:
        """The rows that the draft model could draft for, at once or after reading that pays for most such answers."""
        model = self._model
        if model is None:
            return []
        asking = []
        token_s = self._costs.plain_s(len(places)) / len(places)
        for index, place in enumerate(places):
            if model.has_room(place.seq, place.limit):
                reading_s = model.reading_s(place.seq)
                if not reading_s or reading_s <= _READING_RATIO * token_s * self._expected(place.seq, 0.25):
                    asking.append(index)
        return asking

    def choose(
        self,
        places: SequenceOf[LookupPosition],
        asking: SequenceOf[int],
        least_chance: float,
        *,
        may_guess: bool,
        kept: tuple[float, float],
        ahead: HeadPredictions | None = None,
    ) -> Walked:
        """Guesses for each place, those of `asking` by the draft model where it promises more.

        None behind some that are all right more rarely than `least_chance`; `may_guess`: whether drafts may be made
        without that model; `kept`: what came of gains promised by lookup and with the model, as a share of them;
        `ahead`: what prediction heads say of the places, taken where it is likelier than what is looked up.
        """
        walks = [self._walk(place, least_chance) for place in places]
        found = Walked(walks)
        hoped_gain, num_sure = self._hope(walks, asking) if asking else (0.0, [])
        self._go(walks, ahead=ahead)
        plan = self._plan(walks, self._least_gain if may_guess else math.inf)
        found.gain = plan.gain
        if hoped_gain * kept[1] > plan.gain * kept[0]:
            found.gain, found.with_model = hoped_gain, True
            plan = self._ask(walks, asking, num_sure)
        elif asking and not any(plan.counts):
            self._probe([walks[index] for index in asking], len(places))
        found.counts = plan.counts
        return found

    def judge(self, walk: Walk, token_ids: SequenceOf[int]) -> None:
        """Guesses up to the first wrong one were put to the test, used as drafts or not."""
        num_right = self._judge_chain(walk.guesses, token_ids)
        num_kept = walk.num_kept
        if walk.dropped and num_kept <= num_right:
            self._judge_chain(walk.dropped, token_ids[num_kept:])

    def _judge_chain(self, guesses: SequenceOf[DraftToken], token_ids: SequenceOf[int]) -> int:
        """How many of the guesses are right."""
        for count, (guess, token_id) in enumerate(zip(guesses, token_ids, strict=False)):
            was_right = guess.token_id == token_id
            self._record.observe(guess.kind, was_right=was_right)
            if is_by_model(guess.kind):
                self._record.observe(MODEL, was_right=was_right)
            if not was_right:
                return count
        return min(len(guesses), len(token_ids))

    def _walk(self, place: LookupPosition, least_chance: float) -> Walk:
        return Walk(
            place.seq,
            place.limit,
            self._record,
            looks_up=self._lookup is not None,
            least_chance=least_chance,
            is_near_end=place.is_near_end,
        )

    def _go(self, walks: SequenceOf[Walk], least_next: float = 0.0, ahead: HeadPredictions | None = None) -> None:
        """Look up further guesses."""
        if self._lookup is not None:
            self._lookup.go(walks, least_next, ahead)

    def _plan(self, walks: SequenceOf[Walk], min_gain: float) -> DraftPlan:
        chances = [[guess.chance for guess in walk.guesses] for walk in walks]
        return plan_drafts(chances, len(walks), self._costs.lookup, min_gain=min_gain)

    def _hope(self, walks: SequenceOf[Walk], asking: SequenceOf[int]) -> tuple[float, list[int]]:
        """What drafts of the model promise to gain, and how many guesses of each row are as likely without it."""
        typical = self._record.chance(MODEL)
        self._go(walks, typical)
        num_sure = [len(walk.guesses) for walk in walks]
        chances = [[guess.chance for guess in walk.guesses] for walk in walks]
        for index in asking:
            if not walks[index].is_over:
                chances[index] += [typical] * (walks[index].limit - num_sure[index])
        return plan_drafts(chances, len(walks), self._costs.model, min_gain=self._least_gain).gain, num_sure

    def _ask(self, walks: SequenceOf[Walk], asking: SequenceOf[int], num_sure: SequenceOf[int]) -> DraftPlan:
        """Replace the less likely lookups by what the model says."""
        assert self._model is not None
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
