"""Fit of a recognizer of kinds: what typical prompts of a kind look like to a fit that never saw them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from routing_policies.quality.features import Features
from routing_policies.quality.recognition import KindRecognizer
from routing_policies.quality.training.feature_table import rounded

Floats = NDArray[np.float64]
Names = NDArray[np.str_]

MIN_KINDS: Final = 3
MIN_PROMPTS: Final = 20
"""Number of prompts of a kind below which it cannot be recognized."""
MAX_WORDS: Final = 600
TYPICAL_RATIO: Final = 0.5
"""Share of a kind's own prompts that count as typical by the probability of the kind.

With a larger share, prompts of kinds that were left out pass for known ones, and are ordered worse than by length.
"""
USUAL_RATIO: Final = 0.9
"""Share of a kind's own prompts that have no more unknown words than is usual."""
_WORD_SCALE: Final = 0.5**0.5
_NUM_FOLDS: Final = 3
_MAX_STEPS: Final = 60
_FEW: Final = 2
"""Occurrences, the prompt's own included, up to which a word is unknown to a fit without the prompt."""


def fitted_recognizer(
    features: Sequence[Features], kinds: Names, good: Floats, general: Floats, *, seed: int
) -> tuple[KindRecognizer, Floats] | None:
    """Fit a recognizer of the kinds that are frequent enough.

    Returns:
        The recognizer, and the shift of each prompt by a fit without it, [n]; None where there are too few kinds.

    Args:
        features: Features of each prompt.
        kinds: Kind of work of each prompt, [n]; empty where none is named.
        good: Probability that nothing was lost, [n].
        general: Log odds of each prompt by the general head, [n].
        seed: Seed of the folds.
    """
    names, counts = np.unique(kinds[kinds != ""], return_counts=True)
    usual = np.flatnonzero(np.isin(kinds, names[counts >= MIN_PROMPTS]))
    if len(names[counts >= MIN_PROMPTS]) < MIN_KINDS:
        return None
    known, own = [features[row] for row in usual.tolist()], kinds[usual]
    occurrences = Counter(shape for one in features for shape in set(one.shapes))
    words = sorted(word for word, count in occurrences.most_common(MAX_WORDS) if count > _FEW)
    rows = _rows(known, words)
    model = _fit(rows, own)
    unseen = _unseen_shares(rows, own, seed)
    of_kind = [own == name for name in model.classes_]
    least = [_quantile(unseen[members, place], 1.0 - TYPICAL_RATIO) for place, members in enumerate(of_kind)]
    unknown = np.array([_unknown_share(one, occurrences) for one in known])
    most_unknown = [_quantile(unknown[members], USUAL_RATIO) for members in of_kind]
    shifts = rounded(np.array([_shift(good[usual][members], general[usual][members]) for members in of_kind]))
    best = unseen.argmax(axis=1)
    is_typical = (unseen.max(axis=1) >= np.array(least)[best]) & (unknown <= np.array(most_unknown)[best])
    unseen_shifts = np.zeros(len(features))
    unseen_shifts[usual] = np.where(is_typical, np.array(shifts)[best], 0.0)
    return _recognizer(model, words, least, most_unknown, shifts), unseen_shifts


def _recognizer(
    model: LogisticRegression,
    words: Sequence[str],
    least: Sequence[float],
    most_unknown: Sequence[float],
    shifts: Sequence[float],
) -> KindRecognizer:
    weights = model.coef_  # [kinds, numbers + words]
    num_numbers = weights.shape[1] - len(words)
    by_word = (weights[:, num_numbers:] * _WORD_SCALE).T
    return KindRecognizer(
        kinds=tuple(map(str, model.classes_)),
        biases=tuple(rounded(model.intercept_)),
        numbers=tuple(tuple(rounded(line, 3)) for line in weights[:, :num_numbers]),
        words={word: tuple(rounded(line, 2)) for word, line in zip(words, by_word, strict=True)},
        least_shares=tuple(least),
        most_unknown=tuple(most_unknown),
        shifts=tuple(shifts),
    )


def _rows(features: Sequence[Features], words: Sequence[str]) -> Any:
    """Return the numbers and the presence of each word, [prompts, numbers + words]."""
    place = {word: column for column, word in enumerate(words)}
    found = [(row, place[shape]) for row, one in enumerate(features) for shape in set(one.shapes) & place.keys()]
    rows, columns = np.array(found, dtype=np.int64).reshape(-1, 2).T
    shape = (len(features), len(words))
    present = sparse.csr_matrix((np.full(len(rows), _WORD_SCALE), (rows, columns)), shape=shape)
    return sparse.hstack((sparse.csr_matrix(np.array([one.numbers for one in features])), present), format="csr")


def _fit(rows: Any, kinds: Names) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few steps order the kinds
        return LogisticRegression(max_iter=_MAX_STEPS, tol=1e-3).fit(rows, kinds)


def _unseen_shares(rows: Any, kinds: Names, seed: int) -> Floats:
    """Return the probability of each kind, for each prompt by a fit without it, [n, kinds]."""
    shares = np.zeros((len(kinds), len(np.unique(kinds))))
    for fitted, out in StratifiedKFold(_NUM_FOLDS, shuffle=True, random_state=seed).split(kinds, kinds):
        shares[out] = _fit(rows[fitted], kinds[fitted]).predict_proba(rows[out])
    return shares


def _shift(good: Floats, general: Floats) -> float:
    """Return the log odds of a kind's mean, pulled towards a half by one prompt, less what the general head states."""
    share = (float(good.sum()) + 0.5) / (len(good) + 1.0)
    return float(np.log(share / (1.0 - share)) - general.mean())


def _unknown_share(features: Features, occurrences: Counter[str]) -> float:
    shapes = set(features.shapes)
    return sum(occurrences[shape] <= _FEW for shape in shapes) / max(len(shapes), 1)


def _quantile(values: Floats, share: float) -> float:
    return round(float(np.quantile(values, share)), 4)
