"""Reports to the front: the tokens of steps, and the core's load."""

from __future__ import annotations

from collections.abc import Callable

from engine.core.load_meter import LoadMeter
from engine.protocol import AbortState, Add, SeqOutput, StepReport
from engine.scheduler.scheduler import Scheduler
from engine.step.tally import CoreTotals

_REPORT_INTERVAL_S = 0.005
"""Seconds between two reports of the load and of patient sequences' tokens while the core computes.

Both cost a tenth of a small model's step, and more where the front has no core of its own; no interactive token waits
for them.
"""


class Reporter:
    """Reporter that sends one report a step while a client waits for its tokens, and fewer otherwise."""

    def __init__(
        self,
        scheduler: Scheduler,
        meter: LoadMeter,
        tally: CoreTotals,
        *,
        send: Callable[[StepReport], None],
        clock: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._meter = meter
        self._tally = tally
        self._send = send
        self._clock = clock
        self._load = meter.load()
        self._is_load_old = False
        self._report_due_at = clock()
        self._patient: set[int] = set()
        self._held: list[SeqOutput] = []

    def receive(self, message: object) -> None:
        """Record a message: the load has changed, and a new sequence may be patient."""
        self._is_load_old = True
        if isinstance(message, Add) and message.is_patient:
            self._patient.add(message.seq_id)

    def report(self) -> None:
        """Send what a step made, or hold it while only patient sequences have some."""
        self._is_load_old = True
        outputs, freed = self._scheduler.take_outputs(), self._scheduler.take_freed()
        self._held += outputs
        self._patient.difference_update(output.seq_id for output in outputs if output.finish_reason is not None)
        is_due = self._clock() >= self._report_due_at
        if is_due or freed or any(output.seq_id not in self._patient for output in outputs):
            self._send_report(freed, has_load=is_due)

    def rest(self) -> None:
        """Send the load and what was held: nothing is to be computed."""
        if self._is_load_old:
            self._send_report([], has_load=True)

    def _send_report(self, freed: list[tuple[int, AbortState, float]], *, has_load: bool) -> None:
        if has_load:
            self._load = self._meter.load()
            self._report_due_at = self._clock() + _REPORT_INTERVAL_S
            self._is_load_old = False
        else:
            self._load = self._meter.refreshed(self._load)
        held, self._held = self._held, []
        counters = self._tally.snapshot()
        adapters = self._scheduler.take_adapter_reports()
        self._send(
            StepReport(
                outputs=held,
                load=self._load,
                has_load=has_load,
                counters=counters,
                freed=freed,
                adapters=adapters,
            )
        )
