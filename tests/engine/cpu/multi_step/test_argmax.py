"""The likeliest token and how sure it is are read off logits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.cpu.multi_step.argmax import CONFIDENCE_CLASSES, likeliest


def read(logits: list[list[float]]) -> tuple[list[int], list[int]]:
    """(tokens, kinds) of one row's heads."""
    tokens, kinds = np.empty((2, 1, len(logits)), np.int64)
    likeliest(np.array([logits], dtype=np.float32), tokens, kinds)
    return tokens[0].tolist(), kinds[0].tolist()


@pytest.mark.parametrize(
    ("probability", "confidence"), [(0.3, 0), (0.49, 0), (0.51, 1), (0.74, 1), (0.76, 2), (0.99, 6), (0.99999, 9)]
)
def test_the_confidence_class_is_how_often_the_doubt_was_halved(probability: float, confidence: int) -> None:
    others = math.log((1 - probability) / 4)
    tokens, kinds = read([[others, others, math.log(probability), others, others]])
    assert tokens == [2]
    assert kinds == [confidence]


def test_each_head_has_kinds_of_its_own() -> None:
    assert read([[0.0, 9.0], [9.0, 0.0]])[1][1] - read([[0.0, 9.0], [9.0, 0.0]])[1][0] == CONFIDENCE_CLASSES


def test_logits_that_are_no_numbers_are_silent() -> None:
    nan, infinite = float("nan"), float("-inf")
    assert read([[nan, nan], [infinite, infinite]])[0] == [-1, -1]
