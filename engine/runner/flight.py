"""Steps under way: the seam between a loop that prepares the next step and a runner that computes this one."""

from __future__ import annotations

from typing import Protocol

from engine.step.batch import RowResult, ScheduledBatch


class UndecidedError(Exception):
    """A row's token could not be chosen on the device; running the batch and waiting for it will tell."""


class LaunchedStep(Protocol):
    """A step that was launched."""

    @property
    def batch(self) -> ScheduledBatch:
        """Its rows."""
        ...

    def result(self) -> list[RowResult]:
        """One result a row, in order; waits for them. Raises UndecidedError, or anything that computing can."""
        ...


class LaunchingRunner(Protocol):
    """Computes batches, also without being waited for."""

    def run(self, batch: ScheduledBatch) -> list[RowResult]:
        """One result a row, in order. Running the same rows again must be harmless."""
        ...

    def can_launch(self, batch: ScheduledBatch) -> bool:
        """Whether every row's token can be chosen where the logits are."""
        ...

    def launch(self, batch: ScheduledBatch, behind: LaunchedStep | None = None) -> LaunchedStep:
        """Start a step. `behind` is the step whose tokens are this one's input, row by row the same sequences or fewer.

        Raises like `run`.
        """
        ...
