"""The output of one call of the model runner."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

from engine.models.multi_step import StepTaken
from engine.models.prediction_heads import HeadPredictions
from engine.protocol import TokenLogprobs
from engine.step.scheduler_output import SchedulerOutput


@dataclass(frozen=True, slots=True)
class SequenceResult:
    """One sequence's tokens: none for a chunk in the middle, else the accepted draft tokens and the one after them."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    error: str | None = None
    """Set when this sequence alone could not be computed."""
    num_drafted: int = 0
    """Draft tokens that were verified in steps behind the first."""
    predicted: tuple[int, int] | None = None
    """Accepted and verified draft tokens of the sequence's prediction; None where one step ran alone."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """One result for each chunk, in order, and the durations of the steps."""

    results: list[SequenceResult]
    predictions: HeadPredictions | None = None
    """Predictions of the heads for the sequences that chose tokens, in order; None if no head ran."""
    steps: SequenceOf[StepTaken] = ()
    """The steps of this call where several followed one another."""

    @property
    def num_steps(self) -> int:
        """Steps that were computed."""
        return max(1, len(self.steps))

    @property
    def later_s(self) -> float:
        """Seconds of the steps behind the first."""
        return sum(step.seconds for step in self.steps[1:])

    def num_accepted(self, result: SequenceResult) -> int:
        """Return the number of accepted draft tokens of a sequence: each step chooses one token more."""
        return max(0, len(result.token_ids) - self.num_steps)


class Runner(Protocol):
    """Interface of whatever computes steps."""

    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        """Compute a step and those that follow it.

        May raise anything; executing the same sequences again is harmless.
        """
        ...
