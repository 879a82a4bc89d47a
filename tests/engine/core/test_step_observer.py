"""A step is learnt from by all who may, and by nobody else."""

from __future__ import annotations

import random

import pytest

from engine.core.load_meter import LoadMeter
from engine.core.step_observer import StepObserver
from engine.forecast.step_time import StepTimeModel
from engine.models.multi_step import StepTaken
from engine.runner.warm_up import made_up_batch
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.step_output import SequenceResult, StepOutput
from tests.engine.core.drafters import RandomDrafter
from tests.engine.core.fakes import FakeCore


class Seen:
    """What a model of step time was given."""

    def __init__(self) -> None:
        core = FakeCore()
        self.drafter = RandomDrafter(lambda request: [], random.Random(1))
        self.step_time = StepTimeModel(min_steps=1, refit_every=1)
        self.meter = LoadMeter(core.scheduler, core.blocks, self.step_time)
        self.observer = StepObserver(self.meter, self.step_time, self.drafter)


def test_of_several_steps_the_first_is_what_a_step_takes() -> None:
    seen = Seen()
    scheduled = made_up_batch(1, 1, 32, num_blocks=64, block_size=16)
    steps = [StepTaken(1.0, 0), StepTaken(3.0, 0)]
    for _ in range(9):
        seen.observer.observe(scheduled, StepOutput([SequenceResult([1, 2])], steps=steps), 4.0)
    assert seen.step_time.predict(scheduled.shape()) == pytest.approx(1.0, rel=0.05)
    assert seen.meter.load().step_s == 4.0
    assert seen.drafter.num_steps == 9


def test_steps_with_draft_tokens_are_no_measure_of_plain_ones() -> None:
    seen = Seen()
    (chunk,) = made_up_batch(1, 1, 32, num_blocks=64, block_size=16).chunks
    drafting = ScheduledChunk(chunk.seq, chunk.start, 1, samples=True, draft_token_ids=(1, 2))
    seen.observer.observe(SchedulerOutput([drafting]), StepOutput([SequenceResult([1])]), 4.0)
    assert not seen.step_time.is_fitted


def test_what_was_put_off_is_done_at_rest() -> None:
    seen = Seen()
    seen.observer.rest()
    assert seen.drafter.num_rests == 1
