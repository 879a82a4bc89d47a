"""The walk through a tree, and the logistic function."""

from __future__ import annotations

import pytest

from routing_policies.estimation.boosted_trees import (
    NEVER_RIGHT,
    BoostedTree,
    logistic,
    logit,
    scaled_trees,
    sum_of_trees,
)

TREE = BoostedTree((0, 1, 1), (0.5, 0.2, 0.7), (1.0, 2.0, 3.0, 4.0))


@pytest.mark.parametrize(("row", "leaf"), [([0.5, 0.2], 1.0), ([0.5, 0.3], 2.0), ([0.6, 0.7], 3.0), ([0.6, 0.8], 4.0)])
def test_a_value_up_to_the_threshold_goes_left(row: list[float], leaf: float) -> None:
    assert sum_of_trees([TREE], row) == leaf


def test_a_node_that_splits_nothing_sends_every_number_left() -> None:
    assert sum_of_trees([BoostedTree((0,), (NEVER_RIGHT,), (1.0, 2.0))], [1e300]) == 1.0


def test_trees_add_up_and_can_be_scaled() -> None:
    assert sum_of_trees((), [0.0]) == 0.0
    assert sum_of_trees(scaled_trees([TREE, TREE], 0.5), [0.6, 0.8]) == 4.0
    assert scaled_trees([TREE], 0.0) == ()


def test_a_probability_is_never_out_of_range() -> None:
    assert logistic(0.0) == 0.5
    assert 0.0 <= logistic(-1e9) < 1e-200
    assert logistic(1e9) == 1.0
    assert logistic(logit(0.3)) == pytest.approx(0.3)
