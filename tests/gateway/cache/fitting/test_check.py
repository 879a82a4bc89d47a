"""Hold-outs of the threshold's fit."""

from __future__ import annotations

import numpy as np

from gateway.cache.fitting.check import held_out
from gateway.cache.fitting.questions import Questions


def test_components_are_held_out_whole() -> None:
    question_groups = np.repeat(np.arange(50), 4)
    stream = Questions(texts=["x"] * 200, question_groups=question_groups, components=question_groups)
    is_out = held_out(stream, seed=1)
    assert set(question_groups[is_out]).isdisjoint(question_groups[~is_out])
    assert 40 < is_out.sum() < 120
