"""The seam between the scheduler, which knows what room there is, and whatever proposes draft tokens for it."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from engine.models.multi_step import MultiStepOrder
from engine.step.scheduler_output import SchedulerOutput
from engine.step.sequence import Sequence
from engine.step.step_output import StepOutput


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A row that chooses a token in this step."""

    seq: Sequence
    num_speculative_tokens: int
    """Draft tokens that the sequence's limits and blocks have room for, possibly 0; blocks reach that far."""
    max_tokens: int = 0
    """How long the sequence may get before blocks are to be taken again."""


class Proposal(NamedTuple):
    """A step's work beside choosing one token a row."""

    draft_token_ids: list[tuple[int, ...]]
    """Of each row."""
    predicts: bool = False
    """Whether prediction heads say what follows the tokens that the step chooses."""
    multi_step: MultiStepOrder | None = None
    """Steps that follow in the same call."""


class Drafter(Protocol):
    """Proposes what comes next."""

    num_speculative_tokens: int
    """Most draft tokens a row ever gets."""

    def reach(self, seqs: SequenceOf[Sequence], *, is_decode: bool, may_follow: bool) -> int:
        """Return for how many tokens behind the next one a row's blocks would be of use in a step.

        Args:
            seqs: The rows that choose a token.
            is_decode: Whether the step computes nothing else.
            may_follow: Whether others may follow it before the scheduler is asked again.
        """
        ...

    def propose(self, requests: SequenceOf[DraftRequest], budget: int) -> Proposal:
        """Return what the step just asked about does, with at most `budget` draft tokens in all."""
        ...

    def observe(self, scheduled: SchedulerOutput, output: StepOutput, seconds: float) -> None:
        """Learn from any step: what was computed, what came out, and how long it took with the drafting."""
        ...

    def ended(self, seq: Sequence) -> None:
        """Learn from an answer that came to its end."""
        ...

    def rest(self) -> None:
        """Do what was put off: nothing is to be computed."""
        ...
