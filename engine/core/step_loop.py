"""The loop: drain messages, schedule, compute, take over the results, report. One thread, one step at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from engine.core.inbox import Received
from engine.core.load_meter import LoadMeter
from engine.forecast.step_time import StepTimeModel
from engine.protocol import Abort, AbortState, Add, SeqOutput, Shutdown, StepReport
from engine.sampling.grammar_compiler import GrammarDone
from engine.scheduler.scheduler import Scheduler
from engine.step.batch import RowResult, Runner, ScheduledBatch
from engine.step.drafting import Drafter
from engine.step.tally import CoreTotals

logger = logging.getLogger(__name__)

_REPORT_INTERVAL_S = 0.005
"""So often the load is put together, and patient sequences' tokens are told, while there is something to compute.

Both cost a tenth of a small model's step, and more where the front has no core to itself; no token waits for them.
"""
_MAX_FAILED_STEPS = 5
"""Steps in a row that computed nothing before the core gives up and is started afresh."""


class CoreBrokenError(RuntimeError):
    """The core cannot compute any more; only a new process can."""


class MessageSource(Protocol):
    """Where the front's messages come from."""

    def drain(self, *, wait: bool) -> list[Received]:
        """Messages since the last call, at least one with `wait`. Raises FrontGoneError."""
        ...


class StepLoop:
    """Owns no state but the order of things; everything it drives is handed in."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        inbox: MessageSource,
        *,
        send: Callable[[StepReport], None],
        meter: LoadMeter,
        step_time: StepTimeModel,
        tally: CoreTotals,
        clock: Callable[[], float],
        drafter: Drafter | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._inbox = inbox
        self._send = send
        self._meter = meter
        self._step_time = step_time
        self._tally = tally
        self._clock = clock
        self._drafter = drafter
        self._num_failed_steps = 0
        self._is_stopping = False
        self._is_load_old = False
        self._load = meter.load()
        self._report_due_at = clock()
        self._patient: set[int] = set()
        self._held: list[SeqOutput] = []

    def run(self) -> None:
        """Until Shutdown. Raises FrontGoneError when the front is gone, CoreBrokenError when computing is hopeless."""
        while True:
            is_idle = not self._scheduler.has_work
            if is_idle:
                self._rest()
            self._receive(wait=is_idle)
            if self._is_stopping:
                return
            self._step()
            self._report()

    def _receive(self, *, wait: bool) -> None:
        for message, received_at in self._inbox.drain(wait=wait):
            self._is_load_old = True
            match message:
                case Add():
                    if message.is_patient:
                        self._patient.add(message.seq_id)
                    self._scheduler.add(message, received_at)
                case Abort():
                    self._scheduler.abort(message.seq_ids, received_at, self._clock())
                case GrammarDone():
                    self._scheduler.grammar_done(message, self._clock())
                case Shutdown():
                    self._is_stopping = True

    def _step(self) -> None:
        started_at = self._clock()
        batch = self._scheduler.schedule(started_at)
        if not batch.rows:
            return
        results = self._compute(batch)
        self._take_over(batch, results, started_at, self._clock())

    def _take_over(self, batch: ScheduledBatch, results: list[RowResult], started_at: float, ended_at: float) -> None:
        """Learn from a step, and move its sequences on."""
        shape = batch.shape()
        if self._drafter is not None:
            self._drafter.observe(batch, results, ended_at - started_at)
        # The model is of steps without drafts: with them a step is longer, but also worth more than one token a row.
        if not batch.has_drafts:
            self._step_time.observe(shape, ended_at - started_at - results[0].later_s)
        self._is_load_old = True
        self._meter.observe(shape.num_decode_rows + shape.num_prefill_tokens, ended_at - started_at)
        self._scheduler.complete(batch, results, ended_at)

    def _rest(self) -> None:
        """Nothing is to be computed: do what was put off."""
        if self._is_load_old:
            self._send_report([], tells_load=True)
        if self._drafter is not None:
            self._drafter.rest()

    def _report(self) -> None:
        outputs, freed = self._scheduler.take_outputs(), self._scheduler.take_freed()
        self._held += outputs
        self._patient.difference_update(output.seq_id for output in outputs if output.finish_reason is not None)
        is_due = self._clock() >= self._report_due_at
        if is_due or freed or any(output.seq_id not in self._patient for output in outputs):
            self._send_report(freed, tells_load=is_due)

    def _send_report(self, freed: list[tuple[int, AbortState, float]], *, tells_load: bool) -> None:
        if tells_load:
            self._load = self._meter.load()
            self._report_due_at = self._clock() + _REPORT_INTERVAL_S
            self._is_load_old = False
        else:
            self._load = self._meter.glance(self._load)
        held, self._held = self._held, []
        counters = self._tally.snapshot()
        self._send(StepReport(outputs=held, load=self._load, tells_load=tells_load, counters=counters, freed=freed))

    def _compute(self, batch: ScheduledBatch) -> list[RowResult]:
        """Run the batch; when it raises, run its rows one by one, so that only those at fault get an error."""
        try:
            results = self._runner.run(batch)
            self._num_failed_steps = 0
        # Models, kernels and samplers raise what they like; whatever it is, the other sequences must go on.
        except Exception:
            logger.exception("a step of %d rows failed; trying its rows alone", len(batch.rows))
            results = [self._compute_alone(ScheduledBatch([row])) for row in batch.rows]
            self._scheduler.check_integrity()
            self._give_up_when_hopeless(results)
        return results

    def _compute_alone(self, batch: ScheduledBatch) -> RowResult:
        try:
            return self._runner.run(batch)[0]
        # As above: this row's fault must not become another row's.
        except Exception as error:
            logger.exception("sequence %d failed", batch.rows[0].seq.seq_id)
            return RowResult([], error=f"the model failed on this sequence: {type(error).__name__}")

    def _give_up_when_hopeless(self, results: list[RowResult]) -> None:
        if any(result.error is None for result in results):
            self._num_failed_steps = 0
            return
        self._num_failed_steps += 1
        if self._num_failed_steps >= _MAX_FAILED_STEPS:
            raise CoreBrokenError(f"{self._num_failed_steps} steps in a row failed for every sequence in them")
