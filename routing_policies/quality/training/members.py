"""Members: models of one outcome with different errors, and their stacking.

The weights, none negative, are those that best explain the outcomes. They are fitted to each member's log odds for
prompts outside its own fit (stacking: Wolpert, 1992; Breiman, 1996).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge

from routing_policies.quality.training.calibration import calibrated, doubled_labels

Floats = NDArray[np.float64]
Fold = NDArray[np.bool_]
"""Mask of the rows that are held out together."""

_PULL: Final = 0.01
"""Penalty on the weights, as a share of the number of prompts."""


class Member(NamedTuple):
    """One fitted model."""

    unseen: Floats
    """Log odds of each prompt from a fit without it, [n]."""
    whole: Any
    """Fit on all prompts."""


class Stacked(NamedTuple):
    """Stack of weighted members: log odds are `bias + Σ weight · log odds of the member`."""

    bias: float
    weights: Floats
    unseen: Floats


def cross_fitted(
    fit: Callable[[Fold], Any], predict: Callable[[Any, Fold], Floats], num_rows: int, folds: Sequence[Fold]
) -> Member:
    """Return a member: fitted without each fold for that fold's log odds, and fitted on all rows.

    Args:
        fit: Returns a fit on the given rows.
        predict: Returns the log odds of the given rows by a fit.
        num_rows: Number of rows in all.
        folds: Disjoint rows that together are all rows.
    """
    unseen = np.zeros(num_rows)
    for out in folds:
        unseen[out] = predict(fit(~out), out)
    return Member(unseen, fit(np.ones(num_rows, dtype=np.bool_)))


def linear_member(rows: Any, targets: Floats, weights: Floats, folds: Sequence[Fold], *, penalty: float) -> Member:
    """Return a logistic regression with an L2 penalty; `whole` is the fitted estimator."""

    def fit(fold: Fold) -> LogisticRegression:
        labels, sizes, doubled = doubled_labels(targets[fold], weights[fold])
        part = rows[fold]
        part = sparse.vstack((part, part), format="csr") if sparse.issparse(part) else np.concatenate((part, part))
        return LogisticRegression(C=1.0 / penalty, max_iter=300).fit(part[doubled], labels, sample_weight=sizes)

    return cross_fitted(fit, lambda model, out: np.asarray(model.decision_function(rows[out])), len(targets), folds)


def stacked(members: Sequence[Member], targets: Floats, weights: Floats) -> Stacked:
    """Return the stacked members: weights are not negative, and the log odds are calibrated on held-out prompts."""
    unseen_predictions = np.stack([member.unseen for member in members], axis=1)
    spread = np.maximum(unseen_predictions.std(axis=0), 1e-9)
    ridge = Ridge(alpha=_PULL * len(targets), positive=True).fit(
        unseen_predictions / spread, targets, sample_weight=weights
    )
    shares = ridge.coef_ / spread
    mixed = unseen_predictions @ shares
    scale, bias = calibrated(mixed, np.clip(targets, 0.0, 1.0), weights)
    return Stacked(bias, scale * shares, bias + scale * mixed)
