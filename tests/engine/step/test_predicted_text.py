"""A prediction's counts grow with each step."""

from __future__ import annotations

from array import array

from engine.step.predicted_text import PredictedText


def test_steps_add_up() -> None:
    prediction = PredictedText(array("q", [1, 2, 3]))
    prediction.count(3, 4)
    prediction.count(0, 2)
    assert (prediction.num_accepted, prediction.num_rejected) == (3, 3)
