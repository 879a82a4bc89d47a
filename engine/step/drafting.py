"""The seam between the scheduler, which knows what room there is, and whatever drafts tokens for it."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

from engine.step.batch import RowResult, ScheduledBatch
from engine.step.sequence import Sequence


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A decoding row that may verify drafts in this step."""

    seq: Sequence
    num_speculative_tokens: int
    """Drafts that the sequence's limits and blocks have room for, possibly 0; its block table reaches that far."""
    max_tokens: int = 0
    """How long the sequence may get before blocks are to be taken again."""


class Drafter(Protocol):
    """Guesses what comes next."""

    num_speculative_tokens: int
    """Most drafts a row ever gets."""

    num_reached: int
    """Tokens for which a row's blocks are of use, if that many are free: more than drafts where steps follow one
    another without being scheduled."""

    def wants(self, seqs: SequenceOf[Sequence]) -> bool:
        """Whether it would think about a pure decode step of these rows; asked once before each."""
        ...

    def goes_on(self, seqs: SequenceOf[Sequence]) -> bool:
        """Whether steps may follow a pure decode step of these rows in the same go, though it does not think about
        them; asked where it does not want to."""
        ...

    def foresee(self, seqs: SequenceOf[Sequence]) -> bool:
        """A step with prompts in it will choose the next tokens of these sequences; told in place of `wants`. Whether
        more steps of these may follow in the same go, if there are blocks for it."""
        ...

    def follow(self, requests: SequenceOf[DraftRequest]) -> None:
        """Have them follow, as far as blocks reach."""
        ...

    def draft(self, requests: SequenceOf[DraftRequest], budget: int) -> list[tuple[int, ...]]:
        """Drafts for each row of the step asked about, at most `budget` in all; empty where they would not pay."""
        ...

    def observe(self, batch: ScheduledBatch, results: SequenceOf[RowResult], seconds: float) -> None:
        """Learn from any step: what was computed, what came out, and how long it took with the drafting."""
        ...

    def ended(self, seq: Sequence) -> None:
        """Learn from an answer that came to its end."""
        ...

    def rest(self) -> None:
        """Nothing is to be computed: what was put off may be done."""
        ...
