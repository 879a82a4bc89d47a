"""Multi-step decoding: the steps that follow one another in one call of the runner, and what they take."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from engine.forecast.step_cost import StepCosts
from engine.models.multi_step import DraftTables, MultiStep, MultiStepOrder, StepTaken
from engine.spec_decode.proposers.acceptance_stats import DECAY, KINDS, AcceptanceStats, first_by_heads
from engine.spec_decode.proposers.medusa import shared_stops
from engine.spec_decode.proposers.ngram import NgramDrafts, NgramProposer
from engine.step.drafting import DraftRequest
from engine.step.sequence import Sequence

MIN_GAIN = 1.02
"""Expected gain from which a step verifies draft tokens: here they cost no Python call."""
_MAX_STEPS = 8
_MAX_SECONDS = 0.004
"""Seconds after the first step within which further steps begin, so that arrivals and streamed tokens hardly wait."""


class MultiStepPlanner:
    """Planner of further steps behind a step; their costs are separate from those of single steps."""

    def __init__(self, multi_step: MultiStep, ngram: NgramProposer, stats: AcceptanceStats, costs: StepCosts) -> None:
        """Plan for a model that can compute several steps; `costs` are of steps within one call."""
        self._max_num_seqs = multi_step.max_num_seqs
        self.costs = costs
        multi_step.begin(
            DraftTables(
                memory=ngram.memory,
                trials=stats.trials,
                acceptance_rates=stats.acceptance_rates,
                kinds=KINDS,
                decay=DECAY,
                head_kind=first_by_heads(is_drawn=False),
            )
        )

    def suits(self, seqs: SequenceOf[Sequence]) -> bool:
        """Return whether steps may follow one that chooses tokens of these sequences."""
        if len(seqs) > self._max_num_seqs or shared_stops(seqs) is None:
            return False
        return 0.0 < self.costs.plain_s(len(seqs)) <= _MAX_SECONDS

    def order(
        self, requests: SequenceOf[DraftRequest], found: NgramDrafts, drafts_until: list[int], *, is_speculative: bool
    ) -> MultiStepOrder:
        """Return the order for the steps that may follow a step of these sequences.

        Args:
            requests: Sequences of the step.
            found: Draft tokens that the step verifies or only records.
            drafts_until: Length of each text up to which draft tokens are made.
            is_speculative: True if draft tokens are made; otherwise each step computes one token of each sequence.
        """
        return MultiStepOrder(
            *found.described,
            found=found.arrays,
            lengths=[request.seq.num_tokens for request in requests],
            ends_at=[request.max_tokens for request in requests],
            drafts_until=drafts_until,
            costs=(*self.costs.of_step(len(requests)), MIN_GAIN),
            max_steps=_MAX_STEPS,
            max_seconds=_MAX_SECONDS,
            is_speculative=is_speculative,
        )

    def observe(self, num_seqs: int, steps: SequenceOf[StepTaken]) -> None:
        """Update the costs from steps within which prediction heads ran."""
        for step in steps:
            self.costs.observe(num_seqs, step.num_drafts, step.seconds)
