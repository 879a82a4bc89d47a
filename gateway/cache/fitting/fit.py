"""Fit: from a stream of questions with known meanings to the coefficients of the decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.cache.audit.calibration import floors_of
from gateway.cache.fitting.boosting import Boosting
from gateway.cache.fitting.neighbours import Neighbours, Vectors, earlier_neighbours
from gateway.cache.fitting.questions import Questions
from gateway.cache.similarity.decision import FEATURES, Calibration, Coefficients, Threshold, row_of
from gateway.cache.similarity.differences import compare_wordings
from gateway.cache.similarity.trees import MatchTree
from gateway.cache.similarity.wording import Wording

MIN_SIMILARITY: Final = 0.72
BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
_FOLDS: Final = 5
_MARGIN: Final = 0.9
_LATER: Final = 0.25
"""Of the stream, its last: errors grow with what is kept, and a cache is full for longer than it fills."""
_RESAMPLES: Final = 400
_STRENGTHS: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Questions whose nearest earlier one may be given, by their place in the stream."""

    asked: NDArray[np.int64]
    kept: NDArray[np.int64]
    rows: NDArray[np.float64]
    right: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One run. Held out by component, so that no text is judged by trees that saw it."""

    encoder: str
    seed: int
    note: Callable[[str], None]
    boosting: Boosting = field(default_factory=Boosting)
    num_repeats: int = 3
    """Splits into folds that the held-out log odds are the mean of."""

    def run(self, questions: Questions, vectors: Vectors) -> Coefficients:
        """The coefficients."""
        near = earlier_neighbours(vectors, 2)
        found = candidates_of(questions, near)
        self.note(f"{len(questions)} questions, {len(found.asked)} with a candidate, right {found.right.mean():.3f}")
        told = self.held_out(questions, found)
        calibration = platt_of(told, found.right)
        chances = np.zeros(len(questions))
        chances[found.asked] = 1 / (1 + np.exp(-(calibration.slope * told + calibration.shift)))
        wrong = np.zeros(len(questions), bool)
        wrong[found.asked] = ~found.right
        later = np.arange(len(questions)) >= len(questions) * (1 - _LATER)
        floors = floors_of(
            *(chances[later], wrong[later], questions.components[later], BOUNDS),
            margin=_MARGIN,
            num_resamples=_RESAMPLES,
            rng=np.random.default_rng(self.seed),
        )
        self._compare(questions, near, chances, wrong, floors)
        trees, bias = self.boosting.fit(found.rows, found.right)
        return Coefficients(
            origin=f"QQP calibration components ({len(questions)} questions); coefficients only, no text",
            encoder=self.encoder,
            features=FEATURES,
            min_similarity=MIN_SIMILARITY,
            bias=round(bias, 5),
            trees=tuple(rounded_fit(tree) for tree in trees),
            calibration=calibration,
            strength=strength_of(chances[found.asked], found),
            floors=floors,
        )

    def _compare(
        self,
        questions: Questions,
        near: Neighbours,
        chances: NDArray[np.float64],
        wrong: NDArray[np.bool_],
        floors: tuple[Threshold, ...],
    ) -> None:
        """What each floor gives on held-out components, beside one threshold on the cosine with the same error."""
        places, cosines = near.places[:, 0], near.similarities[:, 0]
        is_wrong = questions.meanings != questions.meanings[places]
        order = np.argsort(-cosines, kind="stable")
        errors = np.cumsum(is_wrong[order]) / len(order)
        for floor in floors:
            served = chances >= floor.chance
            error = float((served & wrong).mean())
            plain = max(1, int(np.searchsorted(errors, error, side="right"))) / len(order)
            self.note(
                f"bound {floor.max_error_ratio:.3f}: floor {floor.chance:.4f}, hits {served.mean():.4f}, wrong "
                f"{error:.5f}; threshold {plain:.4f} hits, so {served.mean() / plain:.3f} times as many"
            )

    def held_out(self, questions: Questions, found: Candidates) -> NDArray[np.float64]:
        """Log odds of every candidate from trees that were fitted without its component; the mean of several splits."""
        told = np.zeros(len(found.asked))
        components = questions.components[found.asked]
        names = np.unique(components)
        for repeat in range(self.num_repeats):
            folds = np.random.default_rng(self.seed + repeat).integers(_FOLDS, size=len(names))
            fold = folds[np.searchsorted(names, components)]
            for number in range(_FOLDS):
                trees, bias = self.boosting.fit(found.rows[fold != number], found.right[fold != number])
                told[fold == number] += log_odds_of(trees, bias, found.rows[fold == number]) / self.num_repeats
        return told


def candidates_of(questions: Questions, neighbours: Neighbours) -> Candidates:
    """Every question whose nearest earlier one is close enough, and that no difference forbids."""
    wordings = [Wording.of(text) for text in questions.texts]
    asked, kept, rows = [], [], []
    for number, (place, runner_up) in enumerate(neighbours.places[:, :2]):
        similarity, next_one = (float(value) for value in neighbours.similarities[number, :2])
        if place < 0 or similarity < MIN_SIMILARITY:
            continue
        differences = compare_wordings(wordings[number], wordings[place])
        if differences.veto is None:
            asked.append(number)
            kept.append(int(place))
            rows.append(row_of(differences, similarity, next_one if runner_up >= 0 else None))
    right = questions.meanings[asked] == questions.meanings[kept]
    return Candidates(np.array(asked), np.array(kept), np.array(rows), right)


def log_odds_of(trees: list[MatchTree], bias: float, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """As trees.log_odds, for many rows at once."""
    total = np.full(len(rows), bias)
    for tree in trees:
        node = np.zeros(len(rows), np.int64)
        features, thresholds = np.array(tree.features), np.array(tree.thresholds)
        while node[0] < len(features):
            node = 2 * node + np.where(rows[np.arange(len(rows)), features[node]] <= thresholds[node], 1, 2)
        total += np.array(tree.leaves)[node - len(features)]
    return total


def platt_of(told: NDArray[np.float64], right: NDArray[np.bool_]) -> Calibration:
    """The line on held-out log odds that makes them probabilities."""
    line = np.array([1.0, 0.0])
    inputs = np.column_stack([told, np.ones_like(told)])
    for _ in range(25):
        chances = 1 / (1 + np.exp(-inputs @ line))
        curve = (inputs * (chances * (1 - chances))[:, None]).T @ inputs
        line = line + np.linalg.solve(curve, inputs.T @ (right - chances))
    return Calibration(slope=round(float(line[0]), 5), shift=round(float(line[1]), 5))


def strength_of(chances: NDArray[np.float64], found: Candidates) -> float:
    """How many verdicts the pooled chance is worth: the most likely, when each entry's verdicts are told one by one."""
    served = chances >= 0.5
    return max(_STRENGTHS, key=lambda strength: _likelihood(strength, chances, found, served))


def _likelihood(strength: float, chances: NDArray[np.float64], found: Candidates, served: NDArray[np.bool_]) -> float:
    records: dict[int, tuple[int, int]] = {}
    total = 0.0
    for number in np.flatnonzero(served):
        right, wrong = records.get(int(found.kept[number]), (0, 0))
        chance = (chances[number] * strength + right) / (strength + right + wrong)
        is_right = bool(found.right[number])
        total += float(np.log(chance if is_right else 1 - chance))
        records[int(found.kept[number])] = (right + is_right, wrong + (not is_right))
    return total


def rounded_fit(tree: MatchTree) -> MatchTree:
    """With as many digits as matter, for a small file."""
    return MatchTree(
        tree.features,
        tuple(round(value, 6) for value in tree.thresholds),
        tuple(round(leaf, 6) for leaf in tree.leaves),
    )
