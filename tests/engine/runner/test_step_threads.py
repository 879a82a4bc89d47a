"""Threads of a step: one for a few rows that decode, all for the rest."""

from __future__ import annotations

import pytest

from engine.runner.step_threads import ThreadedRunner, max_single_rows
from engine.runner.warm_up import made_up_batch
from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import RowResult, StepOutput
from tests.engine.core.fakes import FakeClock


def batch(num_rows: int, num_tokens: int = 1) -> SchedulerOutput:
    return made_up_batch(num_rows, num_tokens, 32, num_blocks=64, block_size=16)


class Machine:
    """Takes a fixed time a step, and another that threads share."""

    def __init__(self, fixed_s: float, row_s: float) -> None:
        self.clock = FakeClock()
        self.threads = 4
        self.used: list[int] = []
        self._fixed_s = fixed_s
        self._row_s = row_s

    def set_threads(self, count: int, num_tokens: int) -> None:
        self.threads = count

    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        self.used.append(self.threads)
        self.clock.advance(self._fixed_s + len(scheduled.rows) * self._row_s / self.threads)
        return StepOutput([RowResult([1]) for _ in scheduled.rows])


@pytest.mark.parametrize(("fixed_s", "expected"), [(0.0, 0), (0.00006, 1), (0.00025, 4), (0.005, 16), (0.1, 0)])
def test_one_thread_serves_as_long_as_more_save_little(fixed_s: float, expected: int) -> None:
    machine = Machine(fixed_s, row_s=0.00002)
    found = max_single_rows(
        machine.execute, batch, num_threads=4, max_rows=64, set_threads=machine.set_threads, clock=machine.clock
    )
    assert found == expected
    assert machine.threads == 4


def test_a_single_thread_is_not_measured() -> None:
    machine = Machine(1.0, 0.0)
    found = max_single_rows(
        machine.execute, batch, num_threads=1, max_rows=64, set_threads=machine.set_threads, clock=machine.clock
    )
    assert (found, machine.used) == (0, [])


def test_only_small_decode_steps_run_on_one_thread() -> None:
    machine = Machine(1.0, 0.0)
    runner = ThreadedRunner(
        machine, num_threads=4, max_single_rows=2, set_threads=machine.set_threads, clock=machine.clock
    )
    for work in (batch(2), batch(3), batch(1, 8), batch(1), batch(1)):
        assert len(runner.execute(work).results) == len(work.rows)
    assert machine.used == [1, 4, 4, 1, 1]


def test_small_compiled_steps_go_on_being_measured_and_no_others() -> None:
    machine = Machine(fixed_s=0.0, row_s=0.00002)
    runner = ThreadedRunner(
        machine,
        num_threads=4,
        max_single_rows=16,
        set_threads=machine.set_threads,
        clock=machine.clock,
        max_compiled_tokens=8,
    )
    for _ in range(300):
        runner.execute(batch(8))
        runner.execute(batch(12))
    assert machine.used[-2:] == [4, 1]
    assert set(machine.used[1::2]) == {1}
