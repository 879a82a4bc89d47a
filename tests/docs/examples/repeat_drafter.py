"""Proposes that a sequence repeats what followed its newest token the last time."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from engine.step.drafting import DraftRequest, Proposal
from engine.step.scheduler_output import SchedulerOutput
from engine.step.sequence import Sequence
from engine.step.step_output import StepOutput


class RepeatDrafter:
    """A Drafter without statistics: it proposes whenever the newest token has stood in the text before."""

    num_speculative_tokens = 4

    def reach(self, seqs: SequenceOf[Sequence], *, is_decode: bool, may_follow: bool) -> int:
        """Return for how many tokens behind the next one blocks are of use: none in steps that hold prompts."""
        return self.num_speculative_tokens if is_decode else 0

    def propose(self, requests: SequenceOf[DraftRequest], budget: int) -> Proposal:
        """Return the draft tokens of each sequence, at most `budget` in all."""
        found = []
        for request in requests:
            tokens = self._continue(request.seq.token_ids, min(request.num_speculative_tokens, budget))
            budget -= len(tokens)
            found.append(tokens)
        return Proposal(found)

    def observe(self, scheduled: SchedulerOutput, output: StepOutput, seconds: float) -> None:
        """Learn nothing: a controller would compare what it proposed with what was accepted."""

    def ended(self, seq: Sequence) -> None:
        """Keep nothing of a response that ended."""

    def rest(self) -> None:
        """Do nothing: nothing was put off."""

    def _continue(self, token_ids: SequenceOf[int], limit: int) -> tuple[int, ...]:
        newest = token_ids[-1]
        for start in range(len(token_ids) - 2, -1, -1):
            if token_ids[start] == newest:
                return tuple(token_ids[start + 1 : start + 1 + limit])
        return ()
