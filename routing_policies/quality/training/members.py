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

Floats = NDArray[np.float64]
Fold = NDArray[np.bool_]
"""Mask of the rows that are held out together."""

_DOUBT: Final = 1e-3
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


def doubled_labels(targets: Floats, weights: Floats) -> tuple[NDArray[np.bool_], Floats, NDArray[np.bool_]]:
    """Return binary labels and weights for fractional targets, and the mask of the 2n rows to keep.

    A row of target t becomes a positive row of weight t and a negative row of weight 1 - t. Rows of weight 0 are
    dropped.
    """
    if targets.min() >= 1.0 or targets.max() <= 0.0:  # a fold may have prompts of one outcome only
        targets = np.clip(targets, _DOUBT, 1.0 - _DOUBT)
    sizes = np.concatenate((weights * targets, weights * np.maximum(1.0 - targets, 0.0)))
    labels = np.repeat([True, False], len(targets))
    used = sizes > 0.0
    return labels[used], sizes[used], used


def stacked(members: Sequence[Member], targets: Floats, weights: Floats) -> Stacked:
    """Return the stacked members: weights are not negative, and predictions for held-out prompts are unbiased."""
    unseen_predictions = np.stack([member.unseen for member in members], axis=1)
    spread = np.maximum(unseen_predictions.std(axis=0), 1e-9)
    ridge = Ridge(alpha=_PULL * len(targets), positive=True).fit(
        unseen_predictions / spread, targets, sample_weight=weights
    )
    shares = ridge.coef_ / spread
    mixed = unseen_predictions @ shares
    labels, sizes, doubled = doubled_labels(targets, weights)
    line = np.concatenate((mixed, mixed))[doubled, None]
    platt = LogisticRegression(C=1e4).fit(line / max(float(mixed.std()), 1e-9), labels, sample_weight=sizes)
    scale = max(float(platt.coef_[0, 0]), 0.0) / max(float(mixed.std()), 1e-9)
    bias = float(platt.intercept_[0])
    return Stacked(bias, scale * shares, bias + scale * mixed)
