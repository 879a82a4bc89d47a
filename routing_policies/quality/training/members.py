"""Members: small models of one question that err in different places, and how they are weighed together.

Each is judged by what it says of prompts that it was not fitted on; the weights, none negative, are those that explain
the outcomes best from that (stacking: Wolpert, 1992; Breiman, 1996). All but one are sums of the same table's columns,
so that together they are one sum again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from routing_policies.quality.training.logistic import Floats, Matrix, fit_logistic, ground_of
from routing_policies.quality.training.table import Columns

NUM_FOLDS: Final = 4
_FAINT_PULL: Final = 2.0
"""Towards equal weights, for members whose differences are mostly chance."""
_CLEAR_PULL: Final = 500.0
"""For others: as many prompts' worth."""
_WITHIN_RIDGE: Final = 1024.0


class Member(NamedTuple):
    """A model, and what it says of each prompt when it was fitted without it; more is better."""

    unseen: Floats
    found: Floats
    """Its coefficients, of all columns; all zero for one that is no sum of columns."""


class Blend(NamedTuple):
    """Members weighed together; says logits."""

    unseen: Floats
    found: Floats
    weights: Floats
    """Of each member."""


class Fold(NamedTuple):
    """Which rows are left out together, by number."""

    of_row: NDArray[np.int64]

    def each(self) -> list[NDArray[np.bool_]]:
        """The rows left out, fold by fold."""
        return [self.of_row == number for number in np.unique(self.of_row)]


def fitted(rows: Matrix, columns: Columns, ridge: Floats, targets: Floats, weights: Floats, folds: Fold) -> Member:
    """A logistic regression on some columns; says logits."""
    part = np.ascontiguousarray(rows[:, columns])
    ground = ground_of(part, ridge[columns])
    unseen = np.zeros(len(rows))
    for out in folds.each():
        coefficients = fit_logistic(part, targets, ridge[columns], weights * ~out, ground=ground)
        unseen[out] = part[out] @ coefficients
    return Member(unseen, _spread(fit_logistic(part, targets, ridge[columns], weights, ground=ground), columns, rows))


def fitted_within(rows: Matrix, columns: Columns, targets: Floats, groups: NDArray[np.int64], folds: Fold) -> Member:
    """What tells prompts of one group apart, the groups' own levels aside (fixed effects); says chances."""
    part = _centred(rows[:, columns], groups)
    wanted = _centred(targets[:, None].astype(np.float32), groups)[:, 0]
    unseen = np.zeros(len(rows))
    for out in folds.each():
        unseen[out] = rows[out][:, columns] @ _least_squares(part[~out], wanted[~out], _WITHIN_RIDGE)
    return Member(unseen, _spread(_least_squares(part, wanted, _WITHIN_RIDGE), columns, rows))


def found_within(rows: Matrix, columns: Columns, targets: Floats, groups: NDArray[np.int64], ridge: float) -> Floats:
    """The coefficients of that alone, of all columns: for whom nobody has to weigh."""
    wanted = _centred(targets[:, None].astype(np.float32), groups)[:, 0]
    return _spread(_least_squares(_centred(rows[:, columns], groups), wanted, ridge), columns, rows)


def weighed(members: Sequence[Member], targets: Floats, weights: Floats, pull: float) -> Floats:
    """One weight for each member, for what it says; none is negative. `pull` is that towards equal weights."""
    said = np.stack([member.unseen for member in members], axis=1)
    spread = said.std(axis=0)
    usable = spread > 1e-9
    scaled = (said - said.mean(axis=0)) / np.where(usable, spread, 1.0)
    alike = (scaled.T * weights) @ scaled / len(targets)
    explained = (scaled.T * weights) @ (targets - np.average(targets, weights=weights)) / len(targets)
    kept = np.flatnonzero(usable & (explained > 0.0))
    found = np.zeros(len(members))
    while len(kept):
        inner, wanted = alike[np.ix_(kept, kept)], explained[kept]
        equal = np.maximum(wanted, 0.0).sum() / max(float(inner.sum()), 1e-9)
        solution = np.linalg.solve(inner + pull * np.eye(len(kept)), wanted + pull * equal)
        if (solution >= 0.0).all():
            found[kept] = solution / spread[kept]
            break
        kept = kept[solution > 0.0]
    return found


def across_groups(
    members: Sequence[Member], targets: Floats, kept: Floats, weights: Floats, *, is_faint: bool
) -> Blend:
    """All members together, weighed by `targets`, as a logit that is right on average for what is kept (Platt, 1999);
    `is_faint`: they tell little, so that their differences are chance."""
    shares = weighed(members, targets, weights, _FAINT_PULL if is_faint else _CLEAR_PULL / len(targets))
    unseen = _mixed([member.unseen for member in members], shares)
    rows = np.stack((np.ones_like(unseen), unseen), axis=1).astype(np.float32)
    offset, scale = (float(value) for value in fit_logistic(rows, kept, np.array([0.0, 1e-3]), weights))
    scale = max(scale, 0.0)
    found = scale * _mixed([member.found for member in members], shares)
    found[0] += offset
    return Blend(offset + scale * unseen, found, scale * shares)


def within_groups(members: Sequence[Member], targets: Floats, weights: Floats, groups: NDArray[np.int64]) -> Blend:
    """All members together, weighed by what tells prompts of one group apart; the groups' levels are left open."""
    inner = [Member(_centred(member.unseen, groups), member.found) for member in members]
    mean = float(np.clip(np.average(targets, weights=weights), 0.05, 0.95))
    shares = weighed(inner, _centred(targets, groups), weights, _FAINT_PULL) / (
        mean * (1.0 - mean)
    )  # from chances to logits
    return Blend(
        _mixed([member.unseen for member in members], shares),
        _mixed([member.found for member in members], shares),
        shares,
    )


def slopes_of(values: Floats, targets: Floats, groups: NDArray[np.int64]) -> Floats:
    """Of each group's targets over its centred values, drawn to 0 as far as chance alone would make them differ
    (empirical Bayes: Efron and Morris, 1975)."""
    squares = np.bincount(groups, values**2) + 1e-9
    slopes = np.bincount(groups, values * targets) / squares
    counts = np.maximum(np.bincount(groups) - 2.0, 1.0)
    noise = np.bincount(groups, (targets - slopes[groups] * values) ** 2) / counts / squares
    sure = 1.0 / noise
    real = max(float(np.sum(sure * (slopes**2 - noise)) / np.sum(sure)), 0.0)
    return np.asarray(slopes * real / (real + noise), dtype=np.float64)


def centred(values: Floats, groups: NDArray[np.int64]) -> Floats:
    """Less the mean of each one's group."""
    return np.asarray(_centred(values[:, None], groups)[:, 0], dtype=np.float64)


def _mixed(parts: Sequence[Floats], shares: Floats) -> Floats:
    return np.asarray(np.sum([share * part for share, part in zip(shares, parts, strict=True)], axis=0))


def _centred(values: NDArray[Any], groups: NDArray[np.int64]) -> NDArray[Any]:
    found = values.copy()
    for group in np.unique(groups):
        members = groups == group
        found[members] -= found[members].mean(axis=0)
    return found


def _least_squares(rows: Matrix, targets: NDArray[np.float32], ridge: float) -> Floats:
    curvature = (rows.T @ rows).astype(np.float64) + ridge * np.eye(rows.shape[1])
    return np.asarray(np.linalg.solve(curvature, (rows.T @ targets).astype(np.float64)), dtype=np.float64)


def _spread(coefficients: Floats, columns: Columns, rows: Matrix) -> Floats:
    found = np.zeros(rows.shape[1])
    found[columns] = coefficients
    return found
