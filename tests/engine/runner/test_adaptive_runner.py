"""How a runner on a CPU computes each step: from a static start, corrected by what steps take."""

from __future__ import annotations

import pytest

from engine.runner.adaptive_runner import AdaptiveRunner
from engine.runner.warm_up import made_up_batch
from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import SequenceResult, StepOutput
from tests.engine.core.fakes import FakeClock

MEGABYTE = 1 << 20


def batch(num_seqs: int, num_tokens: int = 1) -> SchedulerOutput:
    return made_up_batch(num_seqs, num_tokens, 128, num_blocks=1024, block_size=16)


class Machine:
    """Settings and runner of a machine where a step takes a fixed time, and another that threads share."""

    def __init__(self, fixed_s: float = 0.0, token_s: float = 0.00002, *, max_tokens: int = 64) -> None:
        self.clock = FakeClock()
        self.threads = 0
        self.used: list[int] = []
        self.max_tokens = max_tokens
        self._fixed_s = fixed_s
        self._token_s = token_s

    def use_threads(self, num_threads: int, num_tokens: int, *, in_torch: bool = False) -> None:
        self.threads = num_threads

    def execute(self, work: SchedulerOutput) -> StepOutput:
        num_tokens = sum(chunk.num_query_tokens for chunk in work.chunks)
        self.used.append(self.threads)
        self.clock.advance(self._fixed_s + num_tokens * self._token_s / self.threads)
        return StepOutput([SequenceResult([1]) for _ in work.chunks])


def runner_on(machine: Machine, *, num_threads: int = 4, num_weight_bytes: int = 8 * MEGABYTE) -> AdaptiveRunner:
    return AdaptiveRunner(
        machine, machine, num_threads=num_threads, num_weight_bytes=num_weight_bytes, clock=machine.clock
    )


@pytest.mark.parametrize(
    ("num_weight_bytes", "expected"),
    [(MEGABYTE, [1, 1, 1, 4]), (8 * MEGABYTE, [1, 1, 4, 4]), (100 * MEGABYTE, [4, 4, 4, 4])],
)
def test_steps_start_out_on_one_thread_where_there_is_little_to_share(
    num_weight_bytes: int, expected: list[int]
) -> None:
    machine = Machine()
    runner = runner_on(machine, num_weight_bytes=num_weight_bytes)
    for num_seqs in (1, 4, 16, 40):
        runner.execute(batch(num_seqs))
    assert machine.used == expected


def test_one_thread_is_all_there_is() -> None:
    machine = Machine()
    runner = runner_on(machine, num_threads=1)
    for work in (batch(1), batch(16), batch(1, 100)) * 50:
        runner.execute(work)
    assert set(machine.used) == {1}


@pytest.mark.parametrize(("fixed_s", "expected"), [(0.0, 4), (0.005, 1)])
def test_small_compiled_steps_end_on_the_threads_that_serve_them_best(fixed_s: float, expected: int) -> None:
    machine = Machine(fixed_s)
    runner = runner_on(machine)
    for _ in range(300):
        runner.execute(batch(4))
        runner.execute(batch(8))
    assert machine.used[-2:] == [expected, expected]


def test_steps_in_torch_keep_their_threads_whatever_they_take() -> None:
    machine = Machine(max_tokens=0)
    runner = runner_on(machine)
    for _ in range(300):
        runner.execute(batch(4))
        runner.execute(batch(8))
    assert (set(machine.used[::2]), set(machine.used[1::2])) == ({1}, {4})
