"""Training: from prompts with outcomes to a PairModel. Seeded, offline, minutes at most."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from routing_policies.quality.confidence import Checkpoint, TokenOdds, signs_of
from routing_policies.quality.features import Features, features_of
from routing_policies.quality.guard import Guard
from routing_policies.quality.head import Head
from routing_policies.quality.logistic import Floats, Matrix, fit_logistic
from routing_policies.quality.model import PairModel
from routing_policies.quality.preamble import opening_of
from routing_policies.quality.prompt import Prompt

CHECKPOINTS: Final = (1, 2, 4, 8, 16, 24)
MAX_WORDS: Final = 1200
MAX_KNOTS: Final = 5
NUM_FOLDS: Final = 4
_FEW_WORDS: Final = 6
"""Prompts that must have a word before it gets a weight."""
_FEW_OPENINGS: Final = 2
_STEP_RIDGE: Final = 4.0
_WORD_RIDGE: Final = 8.0
_VECTOR_RIDGE: Final = 4.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt, as far as it is kept, and what the two models made of it."""

    features: Features
    good: float
    """Chance, in [0, 1], that the weaker model's answer was as good as the stronger one's."""
    opening: str = ""
    """How the prompt begins; see `preamble`."""
    odds: tuple[TokenOdds, ...] = ()
    """Of the weaker model's first tokens, where they were kept."""
    num_tokens: int = 0
    """Of its whole answer."""
    weight: float = 1.0


def outcome_of(
    prompt: Prompt, weak: float, strong: float, *, odds: tuple[TokenOdds, ...] = (), num_tokens: int = 0
) -> Outcome:
    """From the scores in [0, 1] of the two models' answers."""
    return Outcome(
        features=features_of(prompt),
        good=1.0 - max(strong - weak, 0.0),
        opening=opening_of(prompt.text[:200].split()),
        odds=odds,
        num_tokens=num_tokens,
    )


class Trainer:
    """Fits one pair; `vectors` are the prompts' embeddings, a row each, where the encoder is to be used."""

    def __init__(
        self, outcomes: Sequence[Outcome], *, vectors: NDArray[np.float32] | None = None, seed: int = 7
    ) -> None:
        self._outcomes = outcomes
        self._features = [outcome.features for outcome in outcomes]
        self._vectors = vectors
        self._rng = random.Random(seed)
        self._targets = np.array([outcome.good for outcome in outcomes])
        self._weights = np.array([outcome.weight for outcome in outcomes])
        self._folds = np.array([self._rng.randrange(NUM_FOLDS) for _ in outcomes])

    def fit(self, *, weak: str, strong: str, trained_on: str, encoder: str = "") -> PairModel:
        """The model of the pair."""
        table = Table(self._features)
        embedded = None if self._vectors is None else self._head(table, self._vectors)[0]
        text, priors = self._head(table, None)
        return PairModel(
            weak=weak,
            strong=strong,
            trained_on=trained_on,
            num_prompts=len(self._outcomes),
            text=text,
            embedded=embedded,
            encoder=encoder if embedded is not None else "",
            guard=guard_of(self._features, self._vectors, self._rng),
            openings=self._openings(),
            checkpoints=self._checkpoints(priors),
        )

    def _openings(self) -> tuple[str, ...]:
        counts = Counter(outcome.opening for outcome in self._outcomes)
        return tuple(sorted(opening for opening, count in counts.items() if opening and count >= _FEW_OPENINGS))

    def _head(self, table: Table, vectors: NDArray[np.float32] | None) -> tuple[Head, Floats]:
        """Fitted on everything, its scale set by what it says of prompts it was not fitted on; and that."""
        rows, ridge = table.rows(self._features, vectors), table.ridge(vectors)
        unseen = np.zeros(len(rows))
        for fold in range(NUM_FOLDS):
            kept, out = self._folds != fold, self._folds == fold
            unseen[out] = rows[out] @ fit_logistic(rows[kept], self._targets[kept], ridge, self._weights[kept])
        scale, offset = calibrate(unseen, self._targets, self._weights)
        found = fit_logistic(rows, self._targets, ridge, self._weights)
        return table.head(found * scale, offset), unseen * scale + offset

    def _checkpoints(self, priors: Floats) -> tuple[Checkpoint, ...]:
        if not all(outcome.odds for outcome in self._outcomes):
            return ()
        return tuple(self._checkpoint(num, priors) for num in CHECKPOINTS)

    def _checkpoint(self, num_tokens: int, priors: Floats) -> Checkpoint:
        signs = [
            Features(
                signs_of(float(prior), outcome.odds[:num_tokens], is_whole=outcome.num_tokens <= num_tokens), set(), []
            )
            for prior, outcome in zip(priors, self._outcomes, strict=True)
        ]
        table = Table(signs, max_knots=12)
        found = fit_logistic(table.rows(signs, None), self._targets, table.ridge(None), self._weights)
        return Checkpoint(num_tokens=num_tokens, head=table.head(found, 0.0))


class Table:
    """Columns: one for the intercept, steps of the numbers, words, parts of the embedding."""

    def __init__(self, features: Sequence[Features], *, max_knots: int = MAX_KNOTS) -> None:
        numbers = np.array([one.numbers for one in features])
        shares = np.linspace(0.0, 1.0, max_knots + 2)[1:-1]
        self._knots = [_knots(numbers[:, column], shares) for column in range(numbers.shape[1])]
        counts = Counter(word for one in features for word in one.words)
        usual = [word for word, count in counts.most_common(MAX_WORDS) if count >= _FEW_WORDS]
        self._words = {word: position for position, word in enumerate(sorted(usual))}
        self._num_steps = sum(map(len, self._knots))

    def rows(self, features: Sequence[Features], vectors: NDArray[np.float32] | None) -> Matrix:
        numbers = np.array([one.numbers for one in features])
        steps = [numbers[:, column, None] > knots for column, knots in enumerate(self._knots) if len(knots)]
        words = np.zeros((len(features), len(self._words)), dtype=np.float32)
        for row, one in enumerate(features):
            words[row, [self._words[word] for word in one.words if word in self._words]] = 1.0
        ones = np.ones((len(features), 1), dtype=np.float32)
        parts = [ones, *steps, words] if vectors is None else [ones, *steps, words, vectors * _VECTOR_SCALE]
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def ridge(self, vectors: NDArray[np.float32] | None) -> Floats:
        sizes = [0.0] + [_STEP_RIDGE] * self._num_steps + [_WORD_RIDGE] * len(self._words)
        return np.array(sizes + ([] if vectors is None else [_VECTOR_RIDGE] * vectors.shape[1]))

    def head(self, found: Floats, offset: float) -> Head:
        """The coefficients as a head."""
        place, levels = 1, []
        for knots in self._knots:
            steps = np.concatenate(([0.0], np.cumsum(found[place : place + len(knots)])))
            levels.append(tuple(_rounded(steps)))
            place += len(knots)
        weights = found[place : place + len(self._words)]
        return Head(
            bias=round(float(found[0]) + offset, 4),
            knots=tuple(tuple(_rounded(knots, 6)) for knots in self._knots),
            levels=tuple(levels),
            words={word: value for word, value in zip(self._words, _rounded(weights), strict=True) if value},
            vector=tuple(_rounded(found[place + len(self._words) :] * _VECTOR_SCALE)),
        )


_VECTOR_SCALE: Final = 8.0
"""A part of a unit vector of 384 is about 0.05; so scaled, one ridge fits all."""


def guard_of(
    features: Sequence[Features], vectors: NDArray[np.float32] | None, rng: random.Random, *, num_centres: int = 48
) -> Guard:
    """What nearly all of these prompts have in common."""
    counts = Counter(shape for one in features for shape in set(one.shapes))
    words = frozenset(word for word, count in counts.items() if count >= 2)
    numbers = np.array([one.numbers for one in features])
    margin = 0.02 + 0.05 * (numbers.max(0) - numbers.min(0))
    plain = Guard(words=words, max_unknown=1.0, lowest=(), highest=())
    unknown = np.quantile([plain.unknown_share(one) for one in features], 0.99)
    centres, nearest = _centres(vectors, rng, num_centres) if vectors is not None else ((), -1.0)
    return Guard(
        words=words,
        max_unknown=round(float(unknown), 3),
        lowest=tuple(_rounded(numbers.min(0) - margin)),
        highest=tuple(_rounded(numbers.max(0) + margin)),
        centres=centres,
        min_similarity=nearest,
    )


def _centres(
    vectors: NDArray[np.float32], rng: random.Random, num_centres: int
) -> tuple[tuple[tuple[float, ...], ...], float]:
    """Spherical k-means, and the similarity that all but one in a hundred have to their centre."""
    centres = vectors[rng.sample(range(len(vectors)), min(num_centres, len(vectors)))].astype(np.float64)
    for _ in range(12):
        home = (vectors @ centres.T).argmax(1)
        for number in range(len(centres)):
            members = vectors[home == number]
            if len(members):
                mean = members.mean(0)
                centres[number] = mean / (np.linalg.norm(mean) + 1e-9)
    nearest = float(np.quantile((vectors @ centres.T).max(1), 0.01))
    return tuple(tuple(_rounded(centre, 3)) for centre in centres), round(nearest, 4)


def calibrate(logits: Floats, targets: Floats, weights: Floats) -> tuple[float, float]:
    """Scale and offset that make the logits right on average (Platt, 1999)."""
    rows = np.stack((np.ones_like(logits), logits), axis=1).astype(np.float32)
    offset, scale = fit_logistic(rows, targets, np.array([0.0, 1e-3]), weights)
    return max(float(scale), 0.05), float(offset)


def _knots(values: Floats, shares: Floats) -> Floats:
    found: Floats = np.unique(np.quantile(values, shares, method="lower"))
    return np.array([knot for knot in found if knot < values.max()])


def _rounded(values: Floats, digits: int = 4) -> list[float]:
    return [round(float(value), digits) for value in values]
