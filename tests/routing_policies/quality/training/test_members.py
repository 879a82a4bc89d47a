"""Members that are weighed together: the better counts for more, none is negative, noise is drawn to equal weights."""

from __future__ import annotations

import numpy as np
import pytest

from routing_policies.quality.training.logistic import Floats
from routing_policies.quality.training.members import (
    NUM_FOLDS,
    Fold,
    Member,
    across_groups,
    fitted_within,
    found_within,
    slopes_of,
    weighed,
    within_groups,
)

RNG = np.random.default_rng(4)
NUM = 2000
TRUTH = RNG.normal(size=NUM)
TARGETS = (RNG.random(NUM) < 1 / (1 + np.exp(-TRUTH))).astype(float)
ONES = np.ones(NUM)


def member(noise: float, sign: float = 1.0) -> Member:
    return Member(sign * TRUTH + noise * RNG.normal(size=NUM), np.zeros(3))


@pytest.mark.parametrize("pull", [0.5, 2.0])
def test_the_better_member_counts_for_more_and_none_is_negative(pull: float) -> None:
    good, poor, wrong, silent = weighed(
        [member(0.2), member(3.0), member(0.2, -1.0), member(0.0, 0.0)], TARGETS, ONES, pull
    )
    assert good > poor > 0.0
    assert (wrong, silent) == (0.0, 0.0)


def test_together_they_are_right_on_average_and_better_than_each() -> None:
    members = [member(1.5), member(1.5)]
    blend = across_groups(members, TARGETS, TARGETS, ONES, is_faint=True)
    chances = 1 / (1 + np.exp(-blend.unseen))
    assert chances.mean() == pytest.approx(TARGETS.mean(), abs=0.01)
    alone = max(correlation(one.unseen, TARGETS) for one in members)
    assert correlation(blend.unseen, TARGETS) > alone + 0.01


def test_levels_of_groups_say_nothing_within_them() -> None:
    groups = np.arange(NUM) % 5
    level = Member(np.asarray(groups * 3.0, dtype=np.float64), np.zeros(3))
    blend = within_groups([member(0.5), level], TARGETS, ONES, groups)
    assert blend.weights[0] > 0.0
    assert blend.weights[1] == 0.0


def test_what_holds_within_groups_is_found_although_their_levels_run_against_it() -> None:
    groups = np.arange(NUM) % 8
    rows = np.stack((ONES, TRUTH - 2.0 * groups), axis=1).astype(np.float32)
    found = fitted_within(rows, np.array([1]), TARGETS + 0.4 * groups, groups, Fold(groups % NUM_FOLDS))
    assert found.found[0] == 0.0
    assert found.found[1] > 0.0
    assert correlation(found.unseen, TRUTH - 2.0 * groups) == pytest.approx(1.0, abs=0.01)
    drawn = found_within(rows, np.array([1]), TARGETS + 0.4 * groups, groups, 1e5)
    assert 0.0 < drawn[1] < 0.1 * found.found[1]


@pytest.mark.parametrize(("real", "least", "most"), [(0.0, 0.0, 0.05), (1.0, 0.9, 1.1)])
def test_slopes_of_groups_are_kept_as_far_as_they_are_no_chance(real: float, least: float, most: float) -> None:
    groups = np.arange(NUM) % 10
    slopes = real * np.where(np.arange(10) % 2, 1.0, -1.0)
    found = slopes_of(TRUTH, slopes[groups] * TRUTH + RNG.normal(size=NUM), groups)
    assert least <= float(np.abs(found).mean()) <= most


def correlation(first: Floats, second: Floats) -> float:
    return float(np.corrcoef(first, second)[0, 1])
