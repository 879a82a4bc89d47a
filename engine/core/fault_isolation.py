"""Isolation of a fault to the sequences that cause it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import Runner, SequenceResult, StepOutput

logger = logging.getLogger(__name__)

_MAX_FAILED_STEPS = 5
"""Consecutive steps that computed nothing before the core gives up and is started afresh."""


class CoreBrokenError(RuntimeError):
    """The core cannot compute any more; only a new process can."""


class FaultIsolation:
    """A runner that computes the sequences of a failed step one by one, so that only those at fault get an error."""

    def __init__(self, runner: Runner, check_integrity: Callable[[], None]) -> None:
        """Wrap a runner; `check_integrity` raises unless the scheduler is as it was before the failed step."""
        self._runner = runner
        self._check_integrity = check_integrity
        self._num_failed_steps = 0

    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        """Compute a step, whatever its sequences raise.

        Raises CoreBrokenError when nothing was computed for a while.
        """
        try:
            output = self._runner.execute(scheduled)
            self.succeed()
        # Models, kernels and samplers raise what they like; whatever it is, the other sequences must go on.
        except Exception:
            logger.exception("a step of %d sequences failed; trying each alone", len(scheduled.chunks))
            output = StepOutput([self._execute_alone(SchedulerOutput([chunk])) for chunk in scheduled.chunks])
            self._check_integrity()
            self._give_up_when_hopeless(output)
        return output

    def succeed(self) -> None:
        """Record that a step was computed."""
        self._num_failed_steps = 0

    def _execute_alone(self, scheduled: SchedulerOutput) -> SequenceResult:
        try:
            return self._runner.execute(scheduled).results[0]
        # As above: this sequence's fault must not become another sequence's.
        except Exception as error:
            logger.exception("sequence %d failed", scheduled.chunks[0].seq.seq_id)
            return SequenceResult([], error=f"the model failed on this sequence: {type(error).__name__}")

    def _give_up_when_hopeless(self, output: StepOutput) -> None:
        if any(result.error is None for result in output.results):
            self.succeed()
            return
        self._num_failed_steps += 1
        if self._num_failed_steps >= _MAX_FAILED_STEPS:
            raise CoreBrokenError(f"{self._num_failed_steps} consecutive steps failed for every sequence in them")
