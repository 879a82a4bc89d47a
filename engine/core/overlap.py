"""The step loop for devices that compute beside the host: step N + 1 is launched before the tokens of step N arrive.

    device   |  step N      |  step N + 1  |  step N + 2  |
    host     | N+1 launched, N awaited | N taken over, reported; N+2 launched, N+1 awaited | ...

A following step can be foretold while sequences just go on: nobody waits for a row or blocks that could be had, every
row chooses its token by logits, heat and seed alone, and blocks are there. Who ends with step N by length is left out
of step N + 1; who ends by a token is computed once too often, and that result is dropped. Everything else, a new
request, a prompt's chunk, a grammar, is scheduled as ever, once no step is under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.core.load_meter import LoadMeter
from engine.core.next_step import NextStep
from engine.core.step_loop import MessageSource, StepLoop
from engine.forecast.step_time import StepTimeModel
from engine.protocol import StepReport
from engine.runner.flight import LaunchedStep, LaunchingRunner, UndecidedError
from engine.scheduler.scheduler import Scheduler
from engine.step.batch import RowResult, ScheduledBatch
from engine.step.sequence import SequenceState
from engine.step.tally import CoreTotals

logger = logging.getLogger(__name__)


class OverlappedStepLoop(StepLoop):
    """One step under way at most when messages are taken; without speculation, whose drafts need the tokens."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: LaunchingRunner,
        inbox: MessageSource,
        *,
        foresight: NextStep,
        send: Callable[[StepReport], None],
        meter: LoadMeter,
        step_time: StepTimeModel,
        tally: CoreTotals,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(
            scheduler, runner, inbox, send=send, meter=meter, step_time=step_time, tally=tally, clock=clock
        )
        self._launcher = runner
        self._foresight = foresight
        self._flight: LaunchedStep | None = None
        self._device_free_at = 0.0

    def _step(self) -> None:
        now = self._clock()
        flight, self._flight = self._flight, None
        if flight is not None and _is_dead(flight):
            flight = None
        if flight is None:
            batch = self._scheduler.schedule(now)
            self._foresight.scheduled()
            if not batch.rows:
                return
            flight = self._launch(batch)
            if flight is None:
                self._land(batch, self._compute(batch), now)
                return
        following = self._foresight.following(flight.batch, now)
        if following is not None:
            self._flight = self._launch(following, flight)
        self._land(flight.batch, self._results(flight), now)

    def _launch(self, batch: ScheduledBatch, behind: LaunchedStep | None = None) -> LaunchedStep | None:
        """A flight; None when this batch has to be run and waited for."""
        try:
            return self._launcher.launch(batch, behind) if self._launcher.can_launch(batch) else None
        # As in `_compute`, which is tried next and finds the row at fault.
        except Exception:
            logger.exception("a step of %d rows could not be launched", len(batch.rows))
            return None

    def _results(self, flight: LaunchedStep) -> list[RowResult]:
        """What came out; computed anew, row by row if need be, when it failed. A step behind it is then void."""
        try:
            results = flight.result()
            self._num_failed_steps = 0
        except UndecidedError:
            self._flight = None
            results = self._compute(flight.batch)
        # As in `_compute`.
        except Exception:
            logger.exception("a step of %d rows failed under way", len(flight.batch.rows))
            self._flight = None
            results = self._compute(flight.batch)
        return results

    def _land(self, batch: ScheduledBatch, results: list[RowResult], started_at: float) -> None:
        """Take the results over; the step lasted since the one before it ended, if that was later than its start."""
        ended_at = self._clock()
        self._take_over(batch, results, max(started_at, self._device_free_at), ended_at)
        self._device_free_at = ended_at


def _is_dead(flight: LaunchedStep) -> bool:
    """Whether nobody waits for any of its results."""
    return all(row.seq.state is not SequenceState.RUNNING for row in flight.batch.rows)
