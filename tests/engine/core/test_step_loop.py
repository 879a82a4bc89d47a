"""The loop over the fake model: messages in, reports out, faults stored to those at fault."""

from __future__ import annotations

import random

import msgspec
import pytest

from engine.core.fault_isolation import CoreBrokenError, FaultIsolation
from engine.core.inbox import FrontGoneError, Received
from engine.core.load_meter import LoadMeter
from engine.core.reporter import Reporter
from engine.core.step_loop import StepLoop
from engine.core.step_observer import StepObserver
from engine.protocol import Abort, Add, SeqOutput, Shutdown, StepReport, ToCore
from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import StepOutput
from tests.engine.core.drafters import RandomDrafter
from tests.engine.core.fakes import FakeClock, FakeCore, FakeModel, greedy, make_add


class ScriptedInbox:
    """Hands out messages at given steps; Shutdown when called to wait with nothing left."""

    def __init__(self, clock: FakeClock, script: dict[int, list[ToCore]]) -> None:
        self._clock = clock
        self._script = script
        self._num_drains = 0
        self.num_waits = 0

    def drain(self, *, wait: bool) -> list[Received]:
        """The next messages."""
        messages = self._script.pop(self._num_drains, [])
        self._num_drains += 1
        self.num_waits += wait
        if wait and not messages:
            messages = self._script.pop(min(self._script)) if self._script else [Shutdown()]
        return [Received(message, self._clock()) for message in messages]


class SteadyModel:
    """The fake model, as slow as it is given to be."""

    def __init__(self, model: FakeModel, clock: FakeClock, step_s: float) -> None:
        self._model = model
        self._clock = clock
        self._step_s = step_s

    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        """One result a sequence."""
        self._clock.advance(self._step_s)
        return self._model.execute(scheduled)


class Harness:
    """A step loop over a fake core."""

    def __init__(
        self, script: dict[int, list[ToCore]], step_s: float = 0.01, drafter: RandomDrafter | None = None
    ) -> None:
        self.core = FakeCore()
        self.reports: list[StepReport] = []
        core = self.core
        self.inbox = ScriptedInbox(core.clock, script)
        meter = LoadMeter(core.scheduler, core.blocks, core.step_time)
        model = SteadyModel(core.model, core.clock, step_s)
        self.loop = StepLoop(
            core.scheduler,
            FaultIsolation(model, core.scheduler.check_integrity),
            self.inbox,
            reporter=Reporter(core.scheduler, meter, core.tally, send=self.reports.append, clock=core.clock),
            observer=StepObserver(meter, core.step_time, drafter),
            clock=core.clock,
        )

    def outputs(self) -> list[SeqOutput]:
        """All outputs reported so far."""
        return [output for report in self.reports for output in report.outputs]

    def text(self, seq_id: int) -> list[int]:
        """Tokens reported for a sequence."""
        return [token for output in self.outputs() if output.seq_id == seq_id for token in output.token_ids]

    def end(self, seq_id: int) -> SeqOutput:
        """The one end reported for a sequence."""
        (end,) = [output for output in self.outputs() if output.seq_id == seq_id and output.finish_reason]
        return end


def test_requests_are_answered_and_the_loop_waits_when_idle() -> None:
    harness = Harness({0: [make_add(1, [1, 2], 3)], 6: [make_add(2, [3], 2)]})
    harness.loop.run()
    assert harness.text(1) == greedy([1, 2], 3)
    assert harness.text(2) == greedy([3], 2)
    assert harness.inbox.num_waits == 3
    assert len(harness.reports) == 5


def test_what_a_drafter_put_off_is_done_before_every_wait_and_between_no_steps() -> None:
    drafter = RandomDrafter(lambda request: [], random.Random(1))
    harness = Harness({0: [make_add(1, [1, 2], 3)], 6: [make_add(2, [3], 2)]}, drafter=drafter)
    harness.loop.run()
    assert drafter.num_steps > drafter.num_rests == harness.inbox.num_waits == 3


def test_an_abort_frees_within_the_step_and_is_reported() -> None:
    harness = Harness({0: [make_add(1, [1], 50), make_add(2, [2], 4)], 2: [Abort(seq_ids=[1])]})
    harness.loop.run()
    (report,) = [report for report in harness.reports if report.freed]
    assert report is harness.reports[2]
    assert report.freed == [(1, "decode", 0.0)]
    assert harness.end(1).abort_state == "decode"
    assert harness.text(2) == greedy([2], 4)


def test_an_abort_of_everything_is_reported_though_no_step_runs() -> None:
    harness = Harness({0: [make_add(1, [1], 50)], 1: [Abort(seq_ids=[1])]})
    harness.loop.run()
    assert harness.end(1).finish_reason == "abort"
    assert harness.reports[-1].load.num_blocks_free == harness.core.num_blocks


def test_shutdown_stops_before_the_next_step() -> None:
    harness = Harness({0: [make_add(1, [1], 50)], 3: [Shutdown()]})
    harness.loop.run()
    assert len(harness.reports) == 3


def test_a_fault_of_one_sequence_ends_only_that_one() -> None:
    harness = Harness({0: [make_add(seq_id, [seq_id], 3) for seq_id in (1, 2, 3)]})
    harness.core.model.poisoned = {2}
    harness.loop.run()
    assert harness.end(2).finish_reason == "error"
    assert "RuntimeError" in (harness.end(2).error or "")
    assert (harness.text(1), harness.text(3)) == (greedy([1], 3), greedy([3], 3))
    assert harness.core.blocks.num_free == harness.core.num_blocks


def test_a_core_that_only_fails_gives_up() -> None:
    script: dict[int, list[ToCore]] = {step: [make_add(step, [1], 3)] for step in range(9)}
    harness = Harness(script)
    harness.core.model.poisoned = set(range(9))
    with pytest.raises(CoreBrokenError, match="5 consecutive steps"):
        harness.loop.run()


def test_the_front_going_away_ends_the_loop() -> None:
    class GoneInbox:
        def drain(self, *, wait: bool) -> list[Received]:
            raise FrontGoneError("gone")

    harness = Harness({})
    harness.loop._inbox = GoneInbox()
    with pytest.raises(FrontGoneError):
        harness.loop.run()


def test_reports_carry_load_and_counters() -> None:
    adds: list[ToCore] = [make_add(seq_id, range(seq_id, seq_id + 9), 12) for seq_id in range(12)]
    harness = Harness({0: adds})
    harness.loop.run()
    busy, last = harness.reports[4], harness.reports[-1]
    assert busy.load.num_running + busy.load.num_waiting == 12
    assert busy.load.waiting_prompt_tokens == 9 * busy.load.num_waiting
    assert busy.load.step_s == pytest.approx(0.01)
    assert last.counters.generation_tokens == 12 * 12
    assert last.counters.prompt_tokens == 12 * 9
    assert last.counters.steps == len(harness.reports)
    assert last.load.drain_tokens_per_s == pytest.approx(
        sum(report.load.num_step_tokens for report in harness.reports) / (0.01 * len(harness.reports)), rel=0.1
    )
    assert last.load.forecast_wait_s == 0.0
    assert max(report.load.forecast_wait_s for report in harness.reports) > 0.01


def test_no_token_waits_for_the_load_which_is_reported_every_few_milliseconds_and_when_there_is_nothing_to_do() -> None:
    harness = Harness({0: [make_add(1, [1, 2], 40)]}, step_s=0.001)
    harness.loop.run()
    with_tokens = [report for report in harness.reports if report.outputs]
    assert len(with_tokens) == 40, "each is told after its step"
    assert 7 <= sum(report.has_load for report in with_tokens) <= 9
    assert with_tokens[1].load.num_running == 1, "what is cheap to tell is told with every token"
    assert [(report.has_load, report.outputs) for report in harness.reports if report not in with_tokens] == [
        (True, [])
    ]
    assert harness.reports[-1].load.num_blocks_free == harness.core.num_blocks
    assert harness.inbox.num_waits == 2


def test_reports_and_outputs_keep_order() -> None:
    add: Add = make_add(1, [1], 8)
    harness = Harness({0: [add]})
    harness.loop.run()
    assert [len(report.outputs) for report in harness.reports] == [1] * 8


def test_tokens_that_nobody_reads_yet_are_reported_together() -> None:
    add = msgspec.structs.replace(make_add(1, [1, 2], 40), is_patient=True)
    harness = Harness({0: [add]}, step_s=0.001)
    harness.loop.run()
    assert harness.text(1) == greedy([1, 2], 40)
    assert len(harness.reports[0].outputs) == 1
    assert 8 <= len([report for report in harness.reports if report.outputs]) <= 12
    assert harness.reports[-1].load.num_blocks_free == harness.core.num_blocks


def test_tokens_of_others_are_reported_at_once_and_take_the_patient_ones_along() -> None:
    patient = msgspec.structs.replace(make_add(1, [1, 2], 40), is_patient=True)
    harness = Harness({0: [patient], 10: [make_add(2, [3], 10)]}, step_s=0.001)
    harness.loop.run()
    assert (harness.text(1), harness.text(2)) == (greedy([1, 2], 40), greedy([3], 10))
    reported = [[output.seq_id for output in report.outputs] for report in harness.reports]
    assert sum(2 in seq_ids for seq_ids in reported) == 10
    assert sum(len(seq_ids) for seq_ids in reported if 2 in seq_ids) >= 20
