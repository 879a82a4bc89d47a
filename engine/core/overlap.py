"""Step loop for devices that compute beside the host: step N + 1 is launched before the tokens of step N arrive.

    device   |  step N      |  step N + 1  |  step N + 2  |
    host     | N+1 launched, N awaited | N taken over, reported; N+2 launched, N+1 awaited | ...

The following step can be predicted while sequences just continue. No waiting sequence could start,
and no running one lacks a block. Every sequence chooses its token by logits, temperature and seed alone.

A sequence that ends with step N by length is left out of step N + 1. One that ends by a token is computed once too
often, and that result is dropped. Everything else (a new request, a prompt's chunk, a grammar) is scheduled as usual,
once no step is under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.core.fault_isolation import FaultIsolation
from engine.core.next_step import NextStep
from engine.core.reporter import Reporter
from engine.core.step_loop import MessageSource, StepLoop
from engine.core.step_observer import StepObserver
from engine.runner.flight import LaunchedStep, LaunchingRunner, UndecidedError
from engine.scheduler.scheduler import Scheduler
from engine.step.scheduler_output import SchedulerOutput
from engine.step.sequence import SequenceState
from engine.step.step_output import StepOutput

logger = logging.getLogger(__name__)


class OverlappedStepLoop(StepLoop):
    """Step loop with at most one step under way when messages are taken.

    It does not speculate, because drafts need the tokens of the step before.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: FaultIsolation,
        inbox: MessageSource,
        *,
        launcher: LaunchingRunner,
        next_step: NextStep,
        reporter: Reporter,
        observer: StepObserver,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(scheduler, runner, inbox, reporter=reporter, observer=observer, clock=clock)
        self._launcher = launcher
        self._next_step = next_step
        self._flight: LaunchedStep | None = None
        self._device_free_at = 0.0

    def step(self) -> StepOutput | None:
        """Launch the step behind the one under way, then take the latter over; None where nothing can run."""
        now = self._clock()
        flight, self._flight = self._flight, None
        if flight is not None and _is_dead(flight):
            flight = None
        if flight is None:
            scheduled = self._scheduler.schedule(now)
            self._next_step.scheduled()
            if not scheduled.chunks:
                return None
            flight = self._launch(scheduled)
            if flight is None:
                return self._land(scheduled, self._runner.execute(scheduled), now)
        following = self._next_step.following(flight.scheduled, now)
        if following is not None:
            self._flight = self._launch(following, flight)
        return self._land(flight.scheduled, self._output_of(flight), now)

    def _launch(self, scheduled: SchedulerOutput, behind: LaunchedStep | None = None) -> LaunchedStep | None:
        """Return the step under way; None when it has to be executed and waited for."""
        try:
            return self._launcher.launch(scheduled, behind) if self._launcher.can_launch(scheduled) else None
        # As in `FaultIsolation.execute`, which is tried next and finds the sequence at fault.
        except Exception:
            logger.exception("a step of %d sequences could not be launched", len(scheduled.chunks))
            return None

    def _output_of(self, flight: LaunchedStep) -> StepOutput:
        """Return the output of a step; after a failure, execute it anew, sequence by sequence if necessary.

        A step launched behind a failed one is then void.
        """
        try:
            output = flight.result()
            self._runner.succeed()
        except UndecidedError:
            self._flight = None
            output = self._runner.execute(flight.scheduled)
        # As in `FaultIsolation.execute`.
        except Exception:
            logger.exception("a step of %d sequences failed on the device", len(flight.scheduled.chunks))
            self._flight = None
            output = self._runner.execute(flight.scheduled)
        return output

    def _land(self, scheduled: SchedulerOutput, output: StepOutput, started_at: float) -> StepOutput:
        """Update from a step's output; it lasted since the one before it ended, if that was later than its start."""
        ended_at = self._clock()
        self._observer.observe(scheduled, output, ended_at - max(started_at, self._device_free_at))
        self._scheduler.update_from_output(scheduled, output, ended_at)
        self._device_free_at = ended_at
        return output


def _is_dead(flight: LaunchedStep) -> bool:
    """Return whether no result of the step is needed any more."""
    return all(chunk.seq.state is not SequenceState.RUNNING for chunk in flight.scheduled.chunks)
