"""Fitted trees find what no sum of single numbers can state, and a file states what the booster stated."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from routing_policies.estimation.boosted_trees import BoostedTree, sum_of_trees
from routing_policies.estimation.tree_fitting import Floats, fit_trees, sums_of_trees

SETTINGS: dict[str, Any] = {"max_depth": 4, "max_iter": 30, "min_samples_leaf": 20, "random_state": 1}
ROWS: Floats = np.random.default_rng(8).random((1200, 6)).round(3)


def test_what_holds_only_where_two_numbers_come_together_is_found() -> None:
    labels = (ROWS[:, 1] > 0.5) != (ROWS[:, 4] > 0.5)
    found = sums_of_trees(*fit_trees(ROWS[:900], labels[:900], **SETTINGS), ROWS[900:])
    assert ((found > 0) == labels[900:]).mean() > 0.95


def test_the_trees_state_what_the_booster_states_also_from_a_file() -> None:
    labels = np.random.default_rng(3).random(1200) < ROWS[:, 0] * ROWS[:, 2]
    weights = 0.5 + ROWS[:, 3]
    bias, trees = fit_trees(ROWS, labels, weights, **SETTINGS)
    booster = HistGradientBoostingClassifier(early_stopping=False, max_leaf_nodes=None, **SETTINGS)
    expected = booster.fit(ROWS, labels, sample_weight=weights).decision_function(ROWS)
    read = msgspec.json.decode(msgspec.json.encode(trees), type=tuple[BoostedTree, ...])
    assert sums_of_trees(bias, read, ROWS) == pytest.approx(expected, abs=1e-4)
    alone = [bias + sum_of_trees(read, row) for row in ROWS[:50].tolist()]
    assert alone == pytest.approx(expected[:50].tolist(), abs=1e-4)


def test_a_rising_number_never_lowers_the_result() -> None:
    labels = np.random.default_rng(2).random(1200) < np.abs(ROWS[:, 0] - 0.5) + 0.2 * ROWS[:, 1]
    fitted = fit_trees(ROWS[:, :2], labels, monotonic_cst=[1, 0], **SETTINGS)
    for other in (0.1, 0.5, 0.9):
        line = np.column_stack([np.linspace(0, 1, 200), np.full(200, other)])
        assert (np.diff(sums_of_trees(*fitted, line)) >= -1e-9).all()


@pytest.mark.parametrize("label", [True, False])
def test_labels_that_never_differ_grow_no_trees(label: bool) -> None:
    bias, trees = fit_trees(ROWS, np.full(1200, label), **SETTINGS)
    assert trees == ()
    assert (bias > 0) is label


def test_numbers_that_never_differ_state_the_share_of_the_label() -> None:
    labels = np.arange(1200) % 4 == 0
    bias, trees = fit_trees(np.ones((1200, 3)), labels, **SETTINGS)
    assert bias + sum_of_trees(trees, [1.0, 1.0, 1.0]) == pytest.approx(np.log(1 / 3), abs=1e-3)
