"""What steps cost with drafts and without, and what thinking about them was worth: books that later steps go by."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from engine.forecast.step_cost import StepCosts
from engine.spec_decode.proposers.ngram import NgramDrafts
from engine.spec_decode.statistics.prospects import FEW_TOKENS, Prospect, Prospects, Source, first_token
from engine.spec_decode.walk_choice import Walked
from engine.step.batch import ScheduledBatch

_MEASURED_EVERY = 4
"""While none is thought about, the time of one step in so many is taken down: most should cost nothing at all."""
_ALONE_EVERY = 8
"""Of steps that rounds without guesses could follow, one in so many is followed by none."""
_KEPT_DECAY = 0.95
_MOST_KEPT = 2.0


@dataclass(slots=True)
class ThoughtStep:
    """What was thought about a step."""

    prospect: Prospect
    drafting_s: float
    """What that took so far."""
    found: NgramDrafts | None = None
    """What was guessed where no draft model was asked and no grammar had a say."""
    with_heads: bool = False
    has_glanced: bool = False
    """Whether heads look ahead within the step."""
    walked: Walked | None = None
    """What was guessed otherwise."""

    @property
    def source(self) -> Source:
        """The dearest of those that were asked."""
        if self.walked is not None and self.walked.with_model:
            return "model"
        return "heads" if self.with_heads else "lookup"

    @property
    def gain(self) -> float:
        """Tokens per second that were promised, as a multiple of those without drafts."""
        told = self.found or self.walked
        return 1.0 if told is None else told.gain


class StepBooks:
    """Enters steps; whoever decides about drafts reads costs, guards and kinds."""

    def __init__(self, costs: StepCosts, prospects: Prospects) -> None:
        self._costs = costs
        self._prospects = prospects
        # What came of promised gains, as a share of them.
        self._kept: dict[tuple[Source, int], float] = {}
        self._num_unmeasured = 0
        # Steps that rounds without guesses could follow, since the last one that none did.
        self._num_followed = 0
        # Time of steps that were not entered, until one is.
        self._unseen_s = 0.0

    def skip(self, seconds: float) -> bool:
        """Whether a step that nobody thinks about, nor about the next ones, need not be entered."""
        if self._num_unmeasured >= _MEASURED_EVERY - 1:
            return False
        self._num_unmeasured += 1
        self._unseen_s += seconds
        return True

    def pass_by(self, seconds: float) -> None:
        """So long took what is not entered."""
        self._unseen_s += seconds

    def may_pass_by(self) -> bool:
        """Whether rounds may follow the next step, which is not entered then; one in so many is, with none behind."""
        self._num_followed += 1
        if self._num_followed < _ALONE_EVERY:
            return True
        self._num_followed = 0
        self._num_unmeasured = _MEASURED_EVERY
        return False

    def enter_plain(self, num_rows: int, seconds: float) -> None:
        """A step that nothing was thought about; while all are such, the cost of some is entered."""
        self._prospects.thinking.earn(seconds + self._unseen_s)
        self._unseen_s = 0.0
        self._num_unmeasured += 1
        if self._num_unmeasured >= _MEASURED_EVERY or self._prospects.has_drafted(num_rows):
            self._note_plain(num_rows, seconds)

    def enter(
        self,
        batch: ScheduledBatch,
        step: ThoughtStep,
        num_tokens: SequenceOf[int],
        seconds: float,
        *,
        later_s: float,
        books_s: float,
    ) -> None:
        """A step that was thought about, what it cost and what it was worth.

        `later_s` of it went into the rounds that followed; `books_s`: what entering takes, which no step's time shows.
        """
        num_rows = len(batch.rows)
        num_drafts = sum(len(row.draft_token_ids) for row in batch.rows)
        prospects = self._prospects
        glance_s = self._costs.glance_s(num_rows) if step.has_glanced else 0.0
        thought_s = step.drafting_s + books_s
        if step.source != "model":
            self._costs.observe_thinking(num_rows, thought_s + glance_s)
        if num_drafts:
            self._costs.observe_verification(num_rows, num_drafts, seconds - later_s - step.drafting_s - glance_s)
            prospects.drafted(num_rows)
        elif step.has_glanced:
            self._costs.observe_glance(num_rows, seconds - step.drafting_s)
        elif step.source == "lookup":  # whoever else is asked leaves the next step little in the processor's caches
            self._note_plain(num_rows, seconds - step.drafting_s)
        # A step without drafts is worth itself; thinking about them in vain is what it lost.
        plain_s = self._costs.plain_s(num_rows)
        token_s = plain_s / num_rows
        spent_s = seconds + books_s if num_drafts else plain_s + thought_s + glance_s
        self._judge_kinds(batch, step, num_tokens, token_s=token_s, spent_s=spent_s / num_rows)
        gained_s = 0.0
        if num_drafts or step.source != "lookup":
            gained_s = self._judge_step(step, num_rows, token_s * sum(num_tokens), spent_s)
        else:
            prospects.charge(num_rows, thought_s + glance_s)
            if num_rows > 1:  # many kinds of answers come in company, and one that pays must not pay for all
                prospects.guard(num_rows, "lookup").observe(plain_s, spent_s)
        prospects.thinking.earn(seconds, gained_s)

    def kept_share(self, num_rows: int, source: Source) -> float:
        """What comes of promised gains."""
        return self._kept.get((source, num_rows.bit_length()), 1.0)

    def _note_plain(self, num_rows: int, seconds: float) -> None:
        self._costs.observe_plain(num_rows, seconds)
        self._prospects.plain(num_rows)
        self._num_unmeasured = 0

    def _judge_kinds(
        self, batch: ScheduledBatch, step: ThoughtStep, num_tokens: SequenceOf[int], *, token_s: float, spent_s: float
    ) -> None:
        """What thinking was worth for each row that was thought about; `spent_s` for each of them."""
        for row, expected, count in zip(batch.rows, step.prospect.expected, num_tokens, strict=True):
            if expected:
                self._prospects.kinds.observe(first_token(row.seq), len(batch.rows), token_s * count, spent_s)

    def _judge_step(self, step: ThoughtStep, num_rows: int, worth_s: float, spent_s: float) -> float:
        """Learn from a step with drafts; the seconds that it gained."""
        is_short = step.source == "heads" and max(step.prospect.expected) <= FEW_TOKENS
        self._prospects.guard(num_rows, step.source, is_short=is_short).observe(worth_s, spent_s)
        share = min(worth_s / spent_s / step.gain, _MOST_KEPT)
        key = step.source, num_rows.bit_length()
        self._kept[key] = _KEPT_DECAY * self._kept.get(key, 1.0) + (1.0 - _KEPT_DECAY) * share
        return worth_s - spent_s
