"""Trees: they find what no sum of single figures can say, say nothing of chance, and say the same from a file."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from routing_policies.quality.training.boosting import NUM_TREES, grown, said
from routing_policies.quality.training.logistic import Floats
from routing_policies.quality.training.members import NUM_FOLDS, Fold
from routing_policies.quality.trees import PromptTree, grown_logit, scaled_tree

NUM = 1200
RNG = np.random.default_rng(8)
NUMBERS = RNG.random((NUM, 6))
FOLDS = Fold(np.arange(NUM) % NUM_FOLDS)
ONES = np.ones(NUM)


def correlation(one: Floats, other: Floats) -> float:
    return float(np.corrcoef(one, other)[0, 1])


def test_what_holds_only_where_two_figures_come_together_is_found() -> None:
    targets = np.asarray((NUMBERS[:, 1] > 0.5) != (NUMBERS[:, 4] > 0.5), dtype=np.float64)
    unseen, found = grown(NUMBERS, targets, ONES, FOLDS)
    assert max(abs(correlation(NUMBERS[:, column], targets)) for column in range(6)) < 0.1
    assert correlation(unseen, targets) > 0.8
    assert {1, 4} <= set(found.trees[0].numbers)


def test_of_chance_nothing_is_said_about_prompts_that_were_left_out() -> None:
    targets = np.asarray(RNG.random(NUM) < 0.5, dtype=np.float64)
    unseen, _ = grown(NUMBERS, targets, ONES, FOLDS)
    assert abs(correlation(unseen, targets)) < 0.1


def test_one_prompt_is_told_what_many_at_once_are_also_from_a_file() -> None:
    targets = np.asarray(NUMBERS[:, 0] > 0.3, dtype=np.float64)
    _, found = grown(NUMBERS, targets, ONES, FOLDS)
    read = msgspec.json.decode(msgspec.json.encode(scaled_tree(found.trees, 0.5)), type=tuple[PromptTree, ...])
    together = said(found, NUMBERS[:50]) - found.bias
    for row, expected in zip(NUMBERS[:50].tolist(), together, strict=True):
        assert grown_logit(found.trees, row) == pytest.approx(expected)
        assert grown_logit(read, row) == pytest.approx(0.5 * expected, abs=NUM_TREES * 1e-4)
    assert scaled_tree(found.trees, 0.0) == ()


def test_figures_that_never_differ_grow_no_trees() -> None:
    _, found = grown(np.ones((NUM, 3)), np.asarray(RNG.random(NUM) < 0.2, dtype=np.float64), ONES, FOLDS)
    assert found.trees == ()
    assert found.bias < 0.0
