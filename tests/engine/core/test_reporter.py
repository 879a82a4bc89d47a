"""Tokens are given at once where somebody waits for them, and load a few times a second."""

from __future__ import annotations

import msgspec

from engine.core.load_meter import LoadMeter
from engine.core.reporter import Reporter
from engine.protocol import StepReport
from tests.engine.core.fakes import FakeCore, make_add


class ReporterHarness:
    """A core whose clock stands still, and what its reporter stated."""

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


def test_a_step_whose_tokens_somebody_waits_for_is_reported_at_once_and_its_load_is_refreshed() -> None:
    harness = ReporterHarness()
    add = make_add(1, [1, 2], 3)
    harness.reporter.receive(add)
    harness.core.add(add)
    harness.step()
    (report,) = harness.reports
    assert [output.seq_id for output in report.outputs] == [1]
    assert (report.has_load, report.load.num_running) == (False, 1)


def test_patient_tokens_are_held_until_a_report_is_due() -> None:
    harness = ReporterHarness()
    add = msgspec.structs.replace(make_add(1, [1, 2], 5), is_patient=True)
    harness.reporter.receive(add)
    harness.core.add(add)
    harness.step()
    harness.step()
    assert harness.reports == []
    harness.core.clock.advance(0.01)
    harness.step()
    (report,) = harness.reports
    assert [len(output.token_ids) for output in report.outputs] == [1, 1, 1]
    assert report.has_load


def test_a_core_at_rest_reports_its_load_once() -> None:
    harness = ReporterHarness()
    harness.reporter.receive(make_add(1, [1], 1))
    harness.reporter.rest()
    harness.reporter.rest()
    assert [report.has_load for report in harness.reports] == [True]
