"""Fit: the coefficients of the decision, computed from a stream of questions with known equivalence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from gateway.cache.fitting.neighbours import Neighbours, Vectors, earlier_neighbours
from gateway.cache.fitting.questions import Questions
from gateway.cache.fitting.thresholds import thresholds_of
from gateway.cache.similarity.decision import (
    FEATURES,
    MIN_COMPARED,
    Calibration,
    Coefficients,
    Threshold,
    row_of,
    same_words,
)
from gateway.cache.similarity.differences import compare_wordings
from gateway.cache.similarity.respelling import respelled
from gateway.cache.similarity.wording import Wording
from routing_policies.estimation.tree_fitting import fit_trees, sums_of_trees

MIN_SIMILARITY: Final = 0.72
BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
TREES: Final[dict[str, Any]] = {
    "max_depth": 3,
    "max_iter": 100,
    "learning_rate": 0.08,
    "l2_regularization": 5.0,
    "min_samples_leaf": 100,
    "max_bins": 64,
    "monotonic_cst": [int(name == "similarity") for name in FEATURES],
}
"""Parameters of the trees; a higher similarity never lowers the probability."""
_FOLDS: Final = 5
_MARGIN: Final = 0.9
_LATER: Final = 0.25
"""Share of the stream, its last: errors grow with what is stored, and a cache is full for longer than it fills."""
_RESAMPLES: Final = 400
_STRENGTHS: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Questions whose nearest earlier one may be given, by their place in the stream."""

    indices: NDArray[np.int64]
    cached_indices: NDArray[np.int64]
    rows: NDArray[np.float64]
    right: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Repeats:
    """Questions in the same words as an earlier one; they have a match probability without trees."""

    indices: NDArray[np.int64]
    match_probabilities: NDArray[np.float64]
    right: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One run of the fit, held out by component, so that no text is scored by trees that saw it."""

    encoder: str
    seed: int
    note: Callable[[str], None]
    trees: Mapping[str, Any] = field(default_factory=lambda: TREES)
    """Parameters of scikit-learn's booster."""
    num_repeats: int = 3
    """Splits into folds that the held-out log odds are the mean of."""

    def run(self, questions: Questions, vectors: Vectors) -> Coefficients:
        """Return the coefficients."""
        near = earlier_neighbours(vectors, 2)
        found, repeats = candidates_of(questions, near)
        self.note(f"{len(questions)} questions, {len(found.indices)} with a candidate, right {found.right.mean():.3f}")
        self.note(f"{len(repeats.indices)} in the same words, {(~repeats.right).sum()} of them with another meaning")
        log_odds = self.held_out(questions, found)
        calibration = platt_of(log_odds, found.right)
        match_probabilities = np.zeros(len(questions))
        match_probabilities[found.indices] = 1 / (1 + np.exp(-(calibration.slope * log_odds + calibration.shift)))
        wrong = np.zeros(len(questions), bool)
        wrong[found.indices] = ~found.right
        match_probabilities[repeats.indices], wrong[repeats.indices] = repeats.match_probabilities, ~repeats.right
        later = np.arange(len(questions)) >= len(questions) * (1 - _LATER)
        thresholds = thresholds_of(
            *(match_probabilities[later], wrong[later], questions.components[later], BOUNDS),
            margin=_MARGIN,
            num_resamples=_RESAMPLES,
            rng=np.random.default_rng(self.seed),
        )
        self._compare(questions, near, match_probabilities, wrong, thresholds)
        bias, trees = fit_trees(found.rows, found.right, **self.trees)
        return Coefficients(
            origin=f"QQP calibration components ({len(questions)} questions); coefficients only, no text",
            encoder=self.encoder,
            features=FEATURES,
            min_similarity=MIN_SIMILARITY,
            bias=round(bias, 5),
            trees=trees,
            calibration=calibration,
            strength=strength_of(match_probabilities[found.indices], found),
            thresholds=thresholds,
        )

    def _compare(
        self,
        questions: Questions,
        near: Neighbours,
        match_probabilities: NDArray[np.float64],
        wrong: NDArray[np.bool_],
        thresholds: tuple[Threshold, ...],
    ) -> None:
        """Report each threshold on held-out components, beside a threshold on the cosine with the same error."""
        places, cosines = near.places[:, 0], near.similarities[:, 0]
        is_wrong = questions.question_groups != questions.question_groups[places]
        order = np.argsort(-cosines, kind="stable")
        errors = np.cumsum(is_wrong[order]) / len(order)
        for threshold in thresholds:
            served = match_probabilities >= threshold.match_probability
            error = float((served & wrong).mean())
            plain = max(1, int(np.searchsorted(errors, error, side="right"))) / len(order)
            self.note(
                f"budget {threshold.max_error_ratio:.3f}: from {threshold.match_probability:.4f}, "
                f"hits {served.mean():.4f}, wrong {error:.5f}; "
                f"threshold {plain:.4f} hits, so {served.mean() / plain:.3f} times as many"
            )

    def held_out(self, questions: Questions, found: Candidates) -> NDArray[np.float64]:
        """Return the log odds of every candidate from trees fitted without its component, a mean of several splits."""
        log_odds = np.zeros(len(found.indices))
        components = questions.components[found.indices]
        names = np.unique(components)
        for repeat in range(self.num_repeats):
            folds = np.random.default_rng(self.seed + repeat).integers(_FOLDS, size=len(names))
            fold = folds[np.searchsorted(names, components)]
            for number in range(_FOLDS):
                fitted = fit_trees(found.rows[fold != number], found.right[fold != number], **self.trees)
                log_odds[fold == number] += sums_of_trees(*fitted, found.rows[fold == number]) / self.num_repeats
        return log_odds


def candidates_of(questions: Questions, neighbours: Neighbours) -> tuple[Candidates, Repeats]:
    """Return every question whose nearest earlier one is close enough, and that no veto forbids."""
    wordings = [Wording.of(text) for text in questions.texts]
    indices, cached_indices, rows = [], [], []
    repeated, known = [], []
    for number, (place, runner_up) in enumerate(neighbours.places[:, :2]):
        similarity, next_one = (float(value) for value in neighbours.similarities[number, :2])
        if place < 0 or similarity < MIN_COMPARED:
            continue
        spelled = respelled(wordings[number], wordings[place])
        differences = compare_wordings(spelled, wordings[place])
        if differences.veto is not None:
            continue
        match_probability = same_words(wordings[number], spelled, wordings[place])
        if match_probability is not None:
            repeated.append((number, int(place)))
            known.append(match_probability)
        elif similarity >= MIN_SIMILARITY:
            indices.append(number)
            cached_indices.append(int(place))
            rows.append(row_of(differences, similarity, next_one if runner_up >= 0 else None))
    groups, pairs = questions.question_groups, np.array(repeated, np.int64).reshape(-1, 2)
    right = groups[indices] == groups[cached_indices]
    return (
        Candidates(np.array(indices), np.array(cached_indices), np.array(rows), right),
        Repeats(pairs[:, 0], np.array(known, np.float64), groups[pairs[:, 0]] == groups[pairs[:, 1]]),
    )


def platt_of(log_odds: NDArray[np.float64], right: NDArray[np.bool_]) -> Calibration:
    """Return the line on held-out log odds that makes them probabilities (Platt, 1999)."""
    line = LogisticRegression(C=1e6).fit(log_odds[:, None], right)
    return Calibration(slope=round(float(line.coef_[0, 0]), 5), shift=round(float(line.intercept_[0]), 5))


def strength_of(match_probabilities: NDArray[np.float64], found: Candidates) -> float:
    """Return the weight of the pooled probability in audits: the most likely, when each entry's come one by one."""
    served = match_probabilities >= 0.5
    return max(_STRENGTHS, key=lambda strength: _likelihood(strength, match_probabilities, found, served))


def _likelihood(
    strength: float, match_probabilities: NDArray[np.float64], found: Candidates, served: NDArray[np.bool_]
) -> float:
    records: dict[int, tuple[int, int]] = {}
    total = 0.0
    for number in np.flatnonzero(served):
        right, wrong = records.get(int(found.cached_indices[number]), (0, 0))
        match_probability = (match_probabilities[number] * strength + right) / (strength + right + wrong)
        is_right = bool(found.right[number])
        total += float(np.log(match_probability if is_right else 1 - match_probability))
        records[int(found.cached_indices[number])] = (right + is_right, wrong + (not is_right))
    return total
