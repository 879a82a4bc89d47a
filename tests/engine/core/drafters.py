"""Drafters for tests: right, wrong or partly right by a seeded draw, and always as many as fit."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf

from engine.step.drafting import DraftRequest, Proposal
from engine.step.scheduler_output import SchedulerOutput
from engine.step.sequence import Sequence
from engine.step.step_output import StepOutput

Oracle = Callable[[DraftRequest], list[int]]
"""What a sequence will really state next, at least as far as called."""


class RandomDrafter:
    """Drafts whose right part and length are drawn; keeps count of what it saw."""

    def __init__(
        self, oracle: Oracle, rng: random.Random, *, num_speculative_tokens: int = 4, vocab_size: int = 97
    ) -> None:
        self.num_speculative_tokens = num_speculative_tokens
        self.num_reached = 0
        self._oracle = oracle
        self._rng = rng
        self._vocab_size = vocab_size
        self._follows = False
        self.num_steps = 0
        self.num_rests = 0
        self.foreseen: list[list[int]] = []
        """Sequences of steps with prompts in them."""
        self.followed: list[list[tuple[int, int]]] = []
        """The same for sequences that further steps may follow, and their maximum lengths."""

    def reach(self, seqs: SequenceOf[Sequence], *, is_decode: bool, may_follow: bool) -> int:
        """Remember who was given of a step with prompts in it; others may follow where blocks are of use for them."""
        if not is_decode:
            self.foreseen.append([seq.seq_id for seq in seqs])
        self._follows = may_follow and self.num_reached > 0
        return max(self.num_reached if self._follows else 0, self.num_speculative_tokens if is_decode else 0)

    def propose(self, requests: SequenceOf[DraftRequest], budget: int) -> Proposal:
        """Some right tokens, then random ones; remember what others may follow."""
        if self._follows:
            self.followed.append([(request.seq.seq_id, request.max_tokens) for request in requests])
        if budget <= 0:
            return Proposal([()] * len(requests))
        drafts: list[tuple[int, ...]] = []
        for request in requests:
            count = min(budget, self._rng.randint(0, max(0, request.num_speculative_tokens)))
            right = self._oracle(request)[: self._rng.randint(0, count)]
            wrong = [self._rng.randrange(self._vocab_size) for _ in range(count - len(right))]
            drafts.append((*right, *wrong))
            budget -= count
        return Proposal(drafts)

    def observe(self, scheduled: SchedulerOutput, output: StepOutput, seconds: float) -> None:
        """Count steps."""
        self.num_steps += 1

    def ended(self, seq: Sequence) -> None:
        """Nothing is learned."""

    def rest(self) -> None:
        """Count rests."""
        self.num_rests += 1
