"""Drafts of a draft model, round by round, for as long as one more is worth its time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import Protocol

from engine.forecast.step_cost import StepCosts
from engine.spec_decode.proposers.acceptance_stats import AcceptanceStats
from engine.spec_decode.proposers.draft_model import Behind, Drafted
from engine.spec_decode.proposers.draft_token import MODEL, by_model
from engine.spec_decode.proposers.ngram import NgramProposer
from engine.spec_decode.proposers.walk import Walk
from engine.step.sequence import Sequence

logger = logging.getLogger(__name__)

_UNREAD_AFTER_STEP = 16
"""So few unread tokens are read along with the first draft."""


class DraftingModel(Protocol):
    """A small model that guesses what the large one will say."""

    def num_missing_tokens(self, seq: Sequence) -> int:
        """Tokens of the sequence it has not read yet."""
        ...

    def draft(self, places: SequenceOf[Behind]) -> list[Drafted]:
        """One token for each place. May raise anything."""
        ...


class DraftModelProposer:
    """Asks the draft model, and keeps the time it takes."""

    def __init__(
        self,
        model: DraftingModel,
        lookup: NgramProposer | None,
        record: AcceptanceStats,
        costs: StepCosts,
        clock: Callable[[], float],
        *,
        reach: int,
    ) -> None:
        """`lookup`: knows guesses in between; None: nobody does. `reach`: the most tokens the model can read of one
        sequence."""
        self._model = model
        self._lookup = lookup
        self._record = record
        self._costs = costs
        self._clock = clock
        self._reach = reach
        self.is_broken = False
        """Whether the model failed; it is not asked again."""

    def has_room(self, seq: Sequence, limit: int) -> bool:
        """Whether the model can read so far."""
        return not self.is_broken and 0 < limit <= self._reach - seq.num_tokens

    def reading_s(self, seq: Sequence) -> float:
        """Seconds until the model has caught up with a sequence."""
        num_missing = self._model.num_missing_tokens(seq)
        return num_missing * self._costs.read_token_s if num_missing > _UNREAD_AFTER_STEP else 0.0

    def extend(self, walks: SequenceOf[Walk], num_rows: int, *, most: int | None = None) -> None:
        """Let the walks take the model's guesses, and look up between them what is as likely as those.

        A round goes on only with walks whose next guess would earn more tokens per second than the step as a whole
        so far; `most` ends it earlier.
        """
        cost = self._costs.lookup
        seconds = cost.plain_s(num_rows) + cost.drafting_s(num_rows)
        seconds += cost.per_draft_s(num_rows) * sum(len(walk.guesses) for walk in walks)
        tokens = num_rows + sum(_expected_tokens(walk) for walk in walks)
        typical = self._record.chance(MODEL)
        going = [walk for walk in walks if not walk.is_over]
        num_rounds = 0
        while going and num_rounds != most:
            if not self._take_one(going):
                return
            num_rounds += 1
            round_s = self._costs.round_s(len(going)) or 0.0
            each_s = cost.per_draft_s(num_rows) + round_s / len(going)
            seconds += round_s
            before = [len(walk.guesses) for walk in going]
            if self._lookup is not None:
                self._lookup.go(going, typical)
            for walk, count in zip(going, before, strict=True):
                tokens += walk.chance * (len(walk.guesses) - count + 1)
                seconds += cost.per_draft_s(num_rows) * (len(walk.guesses) - count + 1)
            rate = tokens / seconds
            going = [walk for walk in going if not walk.is_over and walk.chance * typical > rate * each_s]

    def _take_one(self, walks: SequenceOf[Walk]) -> bool:
        """One guess for each walk; False when the model failed."""
        places = [Behind(walk.seq, walk.token_ids) for walk in walks]
        num_unread = sum(self._model.num_missing_tokens(walk.seq) for walk in walks)
        started_at = self._clock()
        try:
            drafted = self._model.draft(places)
        # Whatever a draft model raises, the large model goes on without it.
        except Exception:
            logger.exception("the draft model failed and is not asked again")
            self.is_broken = True
            return False
        self._costs.observe_drafting(len(walks), 1, num_unread, self._clock() - started_at)
        for walk, (token_id, probability) in zip(walks, drafted, strict=True):
            walk.take(token_id, by_model(probability, is_drawn=walk.seq.params.temperature > 0.0))
        return True


def _expected_tokens(walk: Walk) -> float:
    """Right guesses to be expected of a walk."""
    total, chance = 0.0, 1.0
    for guess in walk.guesses:
        chance *= guess.chance
        total += chance
    return total
