"""The loop: drain messages, schedule, execute, update, report. One thread, one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.core.fault_isolation import FaultIsolation
from engine.core.inbox import Received
from engine.core.reporter import Reporter
from engine.core.step_observer import StepObserver
from engine.lora.adapter_table import AdapterRead
from engine.protocol import Abort, Add, LoadAdapter, Shutdown, UnloadAdapter
from engine.sampling.grammar_compiler import GrammarDone
from engine.scheduler.scheduler import Scheduler
from engine.step.step_output import StepOutput


class MessageSource(Protocol):
    """Source of the front's messages."""

    def drain(self, *, wait: bool) -> list[Received]:
        """Return the messages since the last call, at least one with `wait`. Raises FrontGoneError."""
        ...


class StepLoop:
    """Loop over schedule, execute and update; it owns no state beyond their order."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: FaultIsolation,
        inbox: MessageSource,
        *,
        reporter: Reporter,
        observer: StepObserver,
        clock: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._inbox = inbox
        self._reporter = reporter
        self._observer = observer
        self._clock = clock
        self._is_stopping = False

    def run(self) -> None:
        """Run until Shutdown. Raises FrontGoneError without a front, CoreBrokenError when computing is hopeless."""
        while True:
            is_idle = not self._scheduler.has_work
            if is_idle:
                self._reporter.rest()
                self._observer.rest()
            self._receive(wait=is_idle)
            if self._is_stopping:
                return
            self.step()
            self._reporter.report()

    def step(self) -> StepOutput | None:
        """Schedule a step, execute it and update the sequences; None where nothing can run.

        One call of the runner may compute several steps and verify draft tokens in each, as the scheduler's output
        specifies.
        """
        started_at = self._clock()
        scheduled = self._scheduler.schedule(started_at)
        if not scheduled.chunks:
            return None
        output = self._runner.execute(scheduled)
        ended_at = self._clock()
        self._observer.observe(scheduled, output, ended_at - started_at)
        self._scheduler.update_from_output(scheduled, output, ended_at)
        return output

    def _receive(self, *, wait: bool) -> None:
        for message, received_at in self._inbox.drain(wait=wait):
            self._reporter.receive(message)
            match message:
                case Add():
                    self._scheduler.add(message, received_at)
                case Abort():
                    self._scheduler.abort(message.seq_ids, received_at, self._clock())
                case GrammarDone():
                    self._scheduler.grammar_done(message, self._clock())
                case LoadAdapter() | UnloadAdapter() | AdapterRead():
                    self._scheduler.change_adapter(message, self._clock())
                case Shutdown():
                    self._is_stopping = True
