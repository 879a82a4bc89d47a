"""Members that are stacked: the better counts for more, none is negative, and together they are right on average."""

from __future__ import annotations

import numpy as np
import pytest

from routing_policies.quality.training.calibration import doubled_labels
from routing_policies.quality.training.members import (
    Floats,
    Member,
    cross_fitted,
    linear_member,
    stacked,
)

RNG = np.random.default_rng(4)
NUM = 2000
TRUTH = RNG.normal(size=NUM)
TARGETS = (RNG.random(NUM) < 1 / (1 + np.exp(-TRUTH))).astype(float)
ONES = np.ones(NUM)
FOLDS = [np.arange(NUM) % 4 == number for number in range(4)]


def member(noise: float, sign: float = 1.0) -> Member:
    return Member(sign * TRUTH + noise * RNG.normal(size=NUM), None)


def correlation(first: Floats, second: Floats) -> float:
    return float(np.corrcoef(first, second)[0, 1])


def test_the_better_member_counts_for_more_and_none_is_negative() -> None:
    good, poor, wrong, silent = stacked(
        [member(0.2), member(1.0), member(0.2, -1.0), member(0.0, 0.0)], TARGETS, ONES
    ).weights
    assert good > poor > 0.0
    assert (wrong, silent) == (0.0, 0.0)


def test_together_they_are_right_on_average_and_better_than_each() -> None:
    members = [member(1.5), member(1.5)]
    blend = stacked(members, TARGETS, ONES)
    probabilities = 1 / (1 + np.exp(-blend.unseen))
    assert probabilities.mean() == pytest.approx(TARGETS.mean(), abs=0.01)
    alone = max(correlation(one.unseen, TARGETS) for one in members)
    assert correlation(blend.unseen, TARGETS) > alone + 0.01
    notified = sum(weight * one.unseen for weight, one in zip(blend.weights, members, strict=True))
    assert blend.unseen == pytest.approx(blend.bias + notified)


def test_members_that_are_silent_leave_the_share_of_good_answers() -> None:
    blend = stacked([member(0.0, 0.0)], TARGETS, ONES)
    assert blend.unseen == pytest.approx(np.full(NUM, np.log(TARGETS.mean() / (1 - TARGETS.mean()))), abs=0.02)


def test_a_linear_member_finds_what_made_the_data_and_is_evaluated_unseen() -> None:
    rows = np.stack((TRUTH, RNG.normal(size=NUM)), axis=1)
    found = linear_member(rows, TARGETS, ONES, FOLDS, penalty=0.1)
    assert np.ravel(found.whole.coef_) == pytest.approx([1.0, 0.0], abs=0.15)
    assert correlation(found.unseen, TRUTH) > 0.99
    luck = linear_member(RNG.normal(size=(NUM, 200)), TARGETS, ONES, FOLDS, penalty=0.1)
    assert abs(correlation(luck.unseen, TARGETS)) < 0.1


def test_every_row_is_predicted_by_a_fit_without_it() -> None:
    found = cross_fitted(lambda stored: stored, lambda stored, out: (stored & out)[out].astype(float), NUM, FOLDS)
    assert not found.unseen.any()
    assert found.whole.all()


def test_targets_between_right_and_wrong_stand_as_two_rows() -> None:
    labels, sizes, used = doubled_labels(np.array([1.0, 0.0, 0.25, 2.0]), np.array([1.0, 1.0, 2.0, 1.0]))
    assert labels.tolist() == [True, True, True, False, False]
    assert sizes.tolist() == [1.0, 0.5, 2.0, 1.0, 1.5]
    assert np.flatnonzero(used).tolist() == [0, 2, 3, 5, 6]


@pytest.mark.parametrize(("target", "is_likely"), [(1.0, True), (0.0, False)])
def test_a_fold_with_one_outcome_only_can_be_fitted(target: float, is_likely: bool) -> None:
    targets = np.full(NUM, target)
    targets[FOLDS[0]] = 1.0 - target
    found = linear_member(TRUTH[:, None], targets, ONES, FOLDS, penalty=4.0)
    assert ((found.unseen[FOLDS[0]] > 0) == is_likely).all()
