"""A fault ends the sequences that cause it, and a core that computes nothing any more."""

from __future__ import annotations

import pytest

from engine.core.fault_isolation import CoreBrokenError, FaultIsolation
from engine.runner.warm_up import made_up_batch
from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import SequenceResult, StepOutput


class Runner:
    """Fails on steps with these sequences in them."""

    def __init__(self, *poisoned: int) -> None:
        self.poisoned = set(poisoned)
        self.num_executed = 0

    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        self.num_executed += 1
        if self.poisoned & {chunk.seq.seq_id for chunk in scheduled.chunks}:
            raise ValueError("poisoned")
        return StepOutput([SequenceResult([1]) for _ in scheduled.chunks])


def step() -> SchedulerOutput:
    return made_up_batch(3, 1, 32, num_blocks=64, block_size=16)


def test_a_step_that_fails_is_computed_one_by_one_and_the_counts_are_checked() -> None:
    runner, checked = Runner(1), []
    output = FaultIsolation(runner, lambda: checked.append(True)).execute(step())
    assert [result.token_ids for result in output.results] == [[1], [], [1]]
    assert output.results[1].error == "the model failed on this sequence: ValueError"
    assert (runner.num_executed, checked) == (4, [True])


def test_a_core_that_computes_nothing_gives_up_and_one_step_in_between_starts_the_count_anew() -> None:
    runner = Runner(0, 1, 2)
    isolated = FaultIsolation(runner, lambda: None)
    for _ in range(2):
        for _ in range(4):
            isolated.execute(step())
        isolated.succeed()
    for _ in range(4):
        isolated.execute(step())
    with pytest.raises(CoreBrokenError, match="5 consecutive steps"):
        isolated.execute(step())
