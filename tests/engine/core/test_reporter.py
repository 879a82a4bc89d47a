"""Tokens are told at once where somebody waits for them, and load a few times a second."""

from __future__ import annotations

import msgspec

from engine.core.load_meter import LoadMeter
from engine.core.reporter import Reporter
from engine.protocol import StepReport
from tests.engine.core.fakes import FakeCore, make_add


class Told:
    """A core whose clock stands still, and what its reporter said."""

    def __init__(self) -> None:
        self.core = core = FakeCore()
        self.reports: list[StepReport] = []
        meter = LoadMeter(core.scheduler, core.blocks, core.step_time)
        self.reporter = Reporter(core.scheduler, meter, core.tally, send=self.reports.append, clock=core.clock)
        self.reporter.report()  # the first one is due at once
        self.reports.clear()

    def step(self) -> None:
        batch = self.core.scheduler.schedule(self.core.clock())
        self.core.scheduler.update_from_output(batch, self.core.model.execute(batch), self.core.clock())
        self.reporter.report()


def test_a_step_whose_tokens_somebody_waits_for_is_told_at_once_and_its_load_at_a_glance() -> None:
    told = Told()
    add = make_add(1, [1, 2], 3)
    told.reporter.receive(add)
    told.core.add(add)
    told.step()
    (report,) = told.reports
    assert [output.seq_id for output in report.outputs] == [1]
    assert (report.tells_load, report.load.num_running) == (False, 1)


def test_patient_tokens_are_held_until_a_report_is_due() -> None:
    told = Told()
    add = msgspec.structs.replace(make_add(1, [1, 2], 5), is_patient=True)
    told.reporter.receive(add)
    told.core.add(add)
    told.step()
    told.step()
    assert told.reports == []
    told.core.clock.advance(0.01)
    told.step()
    (report,) = told.reports
    assert [len(output.token_ids) for output in report.outputs] == [1, 1, 1]
    assert report.tells_load


def test_a_core_at_rest_tells_its_load_once() -> None:
    told = Told()
    told.reporter.receive(make_add(1, [1], 1))
    told.reporter.rest()
    told.reporter.rest()
    assert [report.tells_load for report in told.reports] == [True]
