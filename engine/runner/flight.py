"""Steps under way: the seam between a loop that prepares the next step and a runner that computes this one."""

from __future__ import annotations

from typing import Protocol

from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import StepOutput


class UndecidedError(Exception):
    """Error for a sequence whose token the device could not choose; running the batch synchronously chooses it."""


class LaunchedStep(Protocol):
    """A step that was launched."""

    @property
    def scheduled(self) -> SchedulerOutput:
        """Sequences that the launched step computes."""
        ...

    def result(self) -> StepOutput:
        """Wait for what it computed. Raises UndecidedError, or anything that computing can."""
        ...


class LaunchingRunner(Protocol):
    """Runner that can also launch batches without waiting for them."""

    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        """Compute a step. Executing the same sequences again must be harmless."""
        ...

    def can_launch(self, scheduled: SchedulerOutput) -> bool:
        """Return whether every sequence's token can be chosen on the device."""
        ...

    def launch(self, scheduled: SchedulerOutput, behind: LaunchedStep | None = None) -> LaunchedStep:
        """Start a step. `behind` is the step whose tokens are this one's input.

        It has the same sequences in the same order, or more.

        Raises like `execute`.
        """
        ...
