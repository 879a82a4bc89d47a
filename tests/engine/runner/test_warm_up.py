"""The warm-up teaches the step-time model what a machine with known costs takes, prompts included."""

from __future__ import annotations

import pytest

from engine.forecast.step_time import StepShape, StepTimeModel
from engine.runner.warm_up import typical_batches, warm_up
from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import SequenceResult, StepOutput
from tests.engine.core.fakes import FakeClock


class Machine:
    """Runs batches in virtual time."""

    def __init__(self, clock: FakeClock, speed: float = 1.0) -> None:
        self._clock = clock
        self._speed = speed

    def seconds(self, shape: StepShape) -> float:
        """What a step takes."""
        # A short chunk costs as much as a longer one: matrices have a size below which they are no faster.
        prefill_s = (
            6e-5 * max(50, shape.num_prefill_tokens) * min(1, shape.num_chunks) + 1e-9 * shape.num_attended_pairs
        )
        return self._speed * (1.2e-3 + 1e-4 * shape.num_decode_seqs + prefill_s + 1e-7 * shape.num_context_tokens)

    def execute(self, batch: SchedulerOutput) -> StepOutput:
        """Nothing but time."""
        self._clock.advance(self.seconds(batch.shape()))
        return StepOutput([SequenceResult([1]) for _ in batch.chunks])


def taught(machine: Machine, clock: FakeClock, limit_s: float) -> StepTimeModel:
    step_time = StepTimeModel()
    batches = typical_batches(max_num_seqs=64, max_tokens=512, max_context=4096, num_blocks=4096, block_size=16)
    warm_up(machine.execute, batches, step_time, clock, limit_s=limit_s)
    return step_time


CHUNKS = [StepShape(0, num, num, num * num, 1) for num in (64, 256, 512)]
STEPS = [StepShape(num_seqs, 0, 500 * num_seqs) for num_seqs in (1, 8, 64)]


@pytest.mark.parametrize("shape", [*CHUNKS, *STEPS], ids=str)
def test_prompts_and_decode_steps_are_known_before_the_first_request(shape: StepShape) -> None:
    clock = FakeClock()
    machine = Machine(clock)
    assert taught(machine, clock, 3.0).predict(shape) == pytest.approx(machine.seconds(shape), rel=0.3)


def test_a_slow_machine_learns_of_both_kinds_in_the_time_it_has() -> None:
    clock = FakeClock()
    machine = Machine(clock, speed=20.0)
    step_time = taught(machine, clock, 3.0)
    assert step_time.is_fitted
    for shape in (CHUNKS[1], STEPS[0]):
        assert step_time.predict(shape) == pytest.approx(machine.seconds(shape), rel=0.5)
