"""The sum of small terms that a prediction is."""

from __future__ import annotations

import numpy as np
import pytest

from routing_policies.quality.features import LENGTH, NUMBERS, Features
from routing_policies.quality.head import Head


def features(*words: str, length: float = 0.0) -> Features:
    numbers = [0.0] * len(NUMBERS)
    numbers[LENGTH] = length
    return Features(numbers, set(words), list(words))


def head(*, bias: float = 0.0, words: dict[str, float] | None = None, vector: tuple[float, ...] = ()) -> Head:
    """Return a head with a step in the length at 0.5 and none in other numbers."""
    knots = tuple((0.5,) if number == LENGTH else () for number in range(len(NUMBERS)))
    levels = tuple((0.0, 2.0) if number == LENGTH else (0.0,) for number in range(len(NUMBERS)))
    return Head(bias=bias, length=1.0, knots=knots, levels=levels, words=words or {}, vector=vector)


def test_each_known_word_adds_its_weight_once() -> None:
    found = head(bias=0.5, words={"add": 1.0, "why": -3.0})
    assert found.log_odds(features()) == 0.5
    assert found.log_odds(features("add", "new")) == 1.5
    assert found.log_odds(features("add", "why")) == -1.5


@pytest.mark.parametrize(("length", "expected"), [(0.4, 0.4), (0.5, 0.5), (0.6, 2.6)])
def test_a_step_begins_above_its_knot(length: float, expected: float) -> None:
    assert head().log_odds(features(length=length)) == pytest.approx(expected)


def test_an_embedding_adds_its_product_and_is_required_where_it_has_weights() -> None:
    vector = np.array([1.0, -2.0], dtype=np.float32)
    assert head(vector=(3.0, 0.5)).log_odds(features(), vector) == pytest.approx(2.0)
    assert head().log_odds(features(), vector) == 0.0
    with pytest.raises(AssertionError, match="needs one"):
        head(vector=(3.0, 0.5)).log_odds(features())
