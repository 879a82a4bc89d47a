"""Rounds that follow a step with drafts, or with prompts, in the same go, where a model can do that: what lookup and
heads say behind one round is verified in the next where that pays, and nobody is asked in between."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from engine.models.multi_step import GuessTables, MultiStep, MultiStepOrder, StepTaken
from engine.spec_decode.proposers.acceptance_stats import DECAY, AcceptanceStats
from engine.spec_decode.proposers.draft_token import KINDS, NEAR_END_KINDS, first_by_heads
from engine.spec_decode.proposers.ngram import NgramDrafts, NgramProposer, NoDrafts
from engine.spec_decode.statistics.prompt_gains import PromptGains
from engine.step.drafting import DraftRequest
from engine.step.sequence import Sequence

NUM_REACHED = 48
"""Tokens for which a row's blocks are asked for."""
_MOST_ROUNDS = 8
_MOST_SECONDS = 0.004
"""No round is begun later behind a step: who comes, goes or is to be told a token waits hardly longer."""
_LEAST_GAIN = 1.02
"""Here a thought costs hardly anything, and its step does not wait for it."""
_KEPT = 0.9
_LEAST_SHARE, _MOST_SHARE = 0.2, 1.0

Costs = tuple[float, float, float]
"""Seconds of a step: without drafts, more with some, more for each."""


class MultiStepPlanner:
    """Orders rounds, and learns what they take."""

    def __init__(
        self,
        rounds: MultiStep,
        lookup: NgramProposer,
        record: AcceptanceStats,
        *,
        num_speculative_tokens: int,
        few_tokens: int,
        length_margin: float,
    ) -> None:
        self._rounds = rounds
        # How much of a step's time a round without drafts takes, by rows: less, for nobody is asked before it.
        self._shares: dict[int, float] = {}
        self._no_guesses = NoDrafts(rounds.max_rows, num_speculative_tokens)
        self._gains = PromptGains()
        self._begun: list[Sequence] = []
        """Of the step under way, whose answers begin and may go on in it."""
        self.is_ordered = False
        """Whether any may follow the step under way."""
        self._guesses = True
        """Whether anything is guessed in them."""
        rounds.begin(
            GuessTables(
                memory=lookup.memory,
                trials=record.trials,
                chances=record.chances,
                kinds=KINDS,
                decay=DECAY,
                near_end_kinds=NEAR_END_KINDS,
                head_kind=first_by_heads(is_drawn=False, is_near_end=False),
                few_tokens=few_tokens,
                length_margin=length_margin,
            )
        )

    def suits(self, num_rows: int, plain_s: float) -> bool:
        """Whether rounds may follow a step that chooses tokens of so many rows, which alone would take so long."""
        return num_rows <= self._rounds.max_rows and 0.0 < plain_s <= _MOST_SECONDS

    def allows_behind_prompts(self, seqs: list[Sequence]) -> bool:
        """Whether rounds behind a step that computes prompts, and begins these answers, are likely to pay; asked once a
        step."""
        is_allowed = self._gains.allow(seqs)
        self._begun = seqs if is_allowed else []
        return is_allowed

    def order_behind_prompts(
        self, requests: SequenceOf[DraftRequest], expected: SequenceOf[float], costs: Costs, least_chance: float
    ) -> None:
        """Have rounds follow a step of which that was asked; none guesses behind guesses that are all right more rarely
        than `least_chance`."""
        found = self._no_guesses.of([request.seq for request in requests], least_chance)
        self.order(found, requests, expected, costs)

    def order_plain(self, requests: SequenceOf[DraftRequest], costs: Costs) -> None:
        """Have rounds follow a step of these rows in which nothing is guessed."""
        found = self._no_guesses.of([request.seq for request in requests], 1.0)
        self.order(found, requests, [0.0] * len(requests), costs, guesses=False)

    def order(
        self,
        found: NgramDrafts,
        requests: SequenceOf[DraftRequest],
        expected: SequenceOf[float],
        costs: Costs,
        *,
        guesses: bool = True,
    ) -> None:
        """Have rounds follow a step of these rows, of which so many tokens are expected yet."""
        if len(requests) > self._rounds.max_rows or costs[0] > _MOST_SECONDS:
            return
        lengths = [request.seq.num_tokens for request in requests]
        self.is_ordered, self._guesses = True, guesses
        plain_s, drafting_s, each_s = costs
        self._rounds.order(
            MultiStepOrder(
                *found.described,
                found=found.arrays,
                lengths=lengths,
                ends_at=[request.max_tokens for request in requests],
                expected=[length + int(num_tokens) for length, num_tokens in zip(lengths, expected, strict=True)],
                costs=(self._shares.get(len(requests), _MOST_SHARE) * plain_s, drafting_s, each_s, _LEAST_GAIN),
                max_rounds=_MOST_ROUNDS,
                max_seconds=_MOST_SECONDS,
                guesses=guesses,
            )
        )

    def take(self, said: SequenceOf[tuple[Sequence, SequenceOf[int]]], costs: Costs, spent_s: float) -> list[StepTaken]:
        """The last step and the rounds that followed it, once; none where it was not followed. `said`: what its rows
        said in all of it; `spent_s`: what that took beside rounds."""
        self.is_ordered = False
        rounds = self._rounds.rounds()
        begun, self._begun = self._begun, []
        plain_s, drafting_s, each_s = costs
        num_rows = len(said)
        # What nobody looks ahead of takes less time yet.
        for one in rounds[1:] if self._guesses else ():
            beside_s = drafting_s + each_s * one.num_drafts if one.num_drafts else 0.0
            share = (one.seconds - beside_s) / plain_s
            share = min(max(share, _LEAST_SHARE), _MOST_SHARE)
            self._shares[num_rows] = _KEPT * self._shares.get(num_rows, _MOST_SHARE) + (1.0 - _KEPT) * share
        if begun:
            spent_s += sum(one.seconds for one in rounds[1:])
            for seq, token_ids in said:
                if seq in begun:
                    self._gains.observe(seq, len(token_ids) - 1 - spent_s / plain_s)
        return rounds
