"""Proposes that a sequence repeats what followed its newest token the last time."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from engine.step.batch import RowResult, ScheduledBatch
from engine.step.drafting import DraftRequest
from engine.step.sequence import Sequence


class RepeatDrafter:
    """A Drafter without statistics: it proposes whenever the newest token has stood in the text before."""

    num_speculative_tokens = 4
    num_reached = 0

    def wants(self, seqs: SequenceOf[Sequence]) -> bool:
        """Return whether the step may verify draft tokens."""
        return True

    def goes_on(self, seqs: SequenceOf[Sequence]) -> bool:
        """Return whether further steps may follow in the same call."""
        return False

    def foresee(self, seqs: SequenceOf[Sequence]) -> bool:
        """Return whether further steps may follow a step with prompts."""
        return False

    def follow(self, requests: SequenceOf[DraftRequest]) -> None:
        """Do nothing: no steps follow."""

    def draft(self, requests: SequenceOf[DraftRequest], budget: int) -> list[tuple[int, ...]]:
        """Return the draft tokens of each row, at most `budget` in all."""
        found = []
        for request in requests:
            tokens = self._propose(request.seq.token_ids, min(request.num_speculative_tokens, budget))
            budget -= len(tokens)
            found.append(tokens)
        return found

    def observe(self, batch: ScheduledBatch, results: SequenceOf[RowResult], seconds: float) -> None:
        """Learn nothing: a controller would compare what it proposed with what was accepted."""

    def ended(self, seq: Sequence) -> None:
        """Keep nothing of an answer that ended."""

    def rest(self) -> None:
        """Do nothing: nothing was put off."""

    def _propose(self, token_ids: SequenceOf[int], limit: int) -> tuple[int, ...]:
        newest = token_ids[-1]
        for start in range(len(token_ids) - 2, -1, -1):
            if token_ids[start] == newest:
                return tuple(token_ids[start + 1 : start + 1 + limit])
        return ()
