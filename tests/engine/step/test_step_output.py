"""What several steps in one call made is given from what the first made."""

from __future__ import annotations

import pytest

from engine.models.multi_step import StepTaken
from engine.step.step_output import SequenceResult, StepOutput


def test_one_step_chooses_one_token_behind_the_accepted_ones() -> None:
    output = StepOutput([SequenceResult([4, 5, 6]), SequenceResult([])])
    assert (output.num_steps, output.later_s) == (1, 0)
    assert [output.num_accepted(result) for result in output.results] == [2, 0]


def test_each_of_several_steps_chooses_one_token_more() -> None:
    steps = [StepTaken(0.5, 0), StepTaken(0.25, 3), StepTaken(0.125, 2)]
    output = StepOutput([SequenceResult([4, 5, 6, 7, 8, 9], num_drafted=5)], steps=steps)
    assert output.num_steps == 3
    assert output.later_s == pytest.approx(0.375)
    assert output.num_accepted(output.results[0]) == 3
