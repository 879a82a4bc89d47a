"""Interface between the scheduler, which determines the room, and the proposers of draft tokens."""

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
    """A sequence that chooses a token in this step."""

    seq: Sequence
    num_speculative_tokens: int
    """Draft tokens that the sequence's limits and blocks have room for, possibly 0; blocks reach that far."""
    max_tokens: int = 0
    """Length that the sequence may reach before it needs further blocks."""


class Proposal(NamedTuple):
    """A step's work beside choosing one token of each sequence."""

    draft_token_ids: list[tuple[int, ...]]
    """Draft tokens of each sequence."""
    predicts: bool = False
    """True if prediction heads run behind the tokens that the step chooses."""
    multi_step: MultiStepOrder | None = None
    """Steps that follow in the same call."""


class Drafter(Protocol):
    """Source of draft tokens and of steps that follow a step in the same call."""

    num_speculative_tokens: int
    """Maximum number of draft tokens of a sequence."""

    def reach(self, seqs: SequenceOf[Sequence], *, is_decode: bool, may_follow: bool) -> int:
        """Return the number of tokens behind the next one for which a sequence can use blocks in a step.

        Args:
            seqs: Sequences that choose a token.
            is_decode: True if the step computes nothing else.
            may_follow: True if other steps may follow it before the scheduler runs again.
        """
        ...

    def propose(self, requests: SequenceOf[DraftRequest], budget: int) -> Proposal:
        """Return the work of the step that `reach` was called for, with at most `budget` draft tokens in all."""
        ...

    def observe(self, scheduled: SchedulerOutput, output: StepOutput, seconds: float) -> None:
        """Update the statistics from any step: its sequences, its output, and its duration with the drafting."""
        ...

    def ended(self, seq: Sequence) -> None:
        """Update the statistics from an answer that has ended."""
        ...

    def rest(self) -> None:
        """Do deferred work while no step is to be computed."""
        ...
