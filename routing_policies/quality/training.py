"""Training: from prompts with outcomes to a PairModel. Seeded, offline, minutes at most."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

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
_VECTOR_RIDGE: Final = 64.0
_RIDGE_SCALES: Final = (1.0, 8.0)
"""The stronger one is for prompts that tell little of their outcomes."""
_VECTOR_SCALE: Final = 8.0
"""A part of a unit vector of 384 is about 0.05; so scaled, steps and parts are of a size."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt, as far as it is kept, and what the two models made of it."""

    features: Features
    lost: float
    """What asking the weaker model lost, in [-1, 1]: the stronger one's score less its own."""
    opening: str = ""
    """How the prompt begins; see `preamble`."""
    odds: tuple[TokenOdds, ...] = ()
    """Of the weaker model's first tokens, where they were kept."""
    num_tokens: int = 0
    """Of its whole answer."""
    weight: float = 1.0

    @property
    def good(self) -> float:
        """Chance, in [0, 1], that nothing was lost."""
        return 1.0 - max(self.lost, 0.0)


def outcome_of(
    prompt: Prompt, weak: float, strong: float, *, odds: tuple[TokenOdds, ...] = (), num_tokens: int = 0
) -> Outcome:
    """From the scores in [0, 1] of the two models' answers."""
    return Outcome(
        features=features_of(prompt),
        lost=strong - weak,
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
        text = self._text(table)
        head, priors = self._calibrated(table, text, None)
        embedded = None
        if self._vectors is not None:
            embedded = self._calibrated(table, text, self._vector_part(self._vectors))[0]
        return PairModel(
            weak=weak,
            strong=strong,
            trained_on=trained_on,
            num_prompts=len(self._outcomes),
            text=head,
            embedded=embedded,
            encoder=encoder if embedded is not None else "",
            guard=guard_of(self._features, self._vectors, self._rng),
            openings=self._openings(),
            checkpoints=self._checkpoints(priors),
        )

    def _openings(self) -> tuple[str, ...]:
        counts = Counter(outcome.opening for outcome in self._outcomes)
        return tuple(sorted(opening for opening, count in counts.items() if opening and count >= _FEW_OPENINGS))

    def _text(self, table: Table) -> _Part:
        """From the features, with the ridge that tells most of prompts it was not fitted on."""
        rows = table.rows(self._features)
        parts = [self._part(rows, table.ridge() * scale) for scale in _RIDGE_SCALES]
        return min(parts, key=lambda part: self._loss(part.unseen))

    def _vector_part(self, vectors: NDArray[np.float32]) -> _Part:
        """From the embedding alone: fitted apart, the two err in different places."""
        ones = np.ones((len(vectors), 1), dtype=np.float32)
        rows = np.concatenate((ones, vectors * _VECTOR_SCALE), axis=1, dtype=np.float32)
        return self._part(rows, np.array([0.0] + [_VECTOR_RIDGE] * vectors.shape[1]))

    def _part(self, rows: Matrix, ridge: Floats) -> _Part:
        unseen = np.zeros(len(rows))
        for fold in range(NUM_FOLDS):
            kept, out = self._folds != fold, self._folds == fold
            unseen[out] = rows[out] @ fit_logistic(rows[kept], self._targets[kept], ridge, self._weights[kept])
        return _Part(fit_logistic(rows, self._targets, ridge, self._weights), unseen)

    def _calibrated(self, table: Table, text: _Part, vector: _Part | None) -> tuple[Head, Floats]:
        """The head whose logits are right on average for prompts it was not fitted on (Platt, 1999), and those."""
        parts = [text.unseen] if vector is None else [text.unseen, vector.unseen]
        rows = np.stack((np.ones_like(text.unseen), *parts), axis=1).astype(np.float32)
        ridge = np.array([0.0] + [1e-3] * len(parts))
        offset, *scales = fit_logistic(rows, self._targets, ridge, self._weights)
        scales = [max(float(scale), 0.0) for scale in scales]
        found = np.array([]) if vector is None else vector.found * scales[1]
        head = table.head(text.found * scales[0], float(offset), found)
        logits: Floats = float(offset) + sum(scale * part for scale, part in zip(scales, parts, strict=True))
        return head, logits

    def _loss(self, logits: Floats) -> float:
        chances = np.clip(1.0 / (1.0 + np.exp(-np.clip(logits, -30.0, 30.0))), 1e-6, 1.0 - 1e-6)
        targets = self._targets
        return float(-(self._weights * (targets * np.log(chances) + (1 - targets) * np.log(1 - chances))).mean())

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
        found = fit_logistic(table.rows(signs), self._targets, table.ridge(), self._weights)
        return Checkpoint(num_tokens=num_tokens, head=table.head(found))


class _Part(NamedTuple):
    """Coefficients, and what they make of each prompt when they were fitted without it."""

    found: Floats
    unseen: Floats


class Table:
    """Columns: one for the intercept, steps of the numbers, words."""

    def __init__(self, features: Sequence[Features], *, max_knots: int = MAX_KNOTS) -> None:
        numbers = np.array([one.numbers for one in features])
        shares = np.linspace(0.0, 1.0, max_knots + 2)[1:-1]
        self._knots = [_knots(numbers[:, column], shares) for column in range(numbers.shape[1])]
        counts = Counter(word for one in features for word in one.words)
        usual = [word for word, count in counts.most_common(MAX_WORDS) if count >= _FEW_WORDS]
        self._words = {word: position for position, word in enumerate(sorted(usual))}
        self._num_steps = sum(map(len, self._knots))

    def rows(self, features: Sequence[Features]) -> Matrix:
        """A row for each prompt."""
        numbers = np.array([one.numbers for one in features])
        steps = [numbers[:, column, None] > knots for column, knots in enumerate(self._knots) if len(knots)]
        words = np.zeros((len(features), len(self._words)), dtype=np.float32)
        for row, one in enumerate(features):
            words[row, [self._words[word] for word in one.words if word in self._words]] = 1.0
        ones = np.ones((len(features), 1), dtype=np.float32)
        return np.concatenate([ones, *steps, words], axis=1, dtype=np.float32)

    def ridge(self) -> Floats:
        """Of each column; none for the intercept."""
        return np.array([0.0] + [_STEP_RIDGE] * self._num_steps + [_WORD_RIDGE] * len(self._words))

    def head(self, found: Floats, offset: float = 0.0, vector: Floats | None = None) -> Head:
        """The coefficients as a head; `vector` has an intercept of its own."""
        place, levels = 1, []
        for knots in self._knots:
            steps = np.concatenate(([0.0], np.cumsum(found[place : place + len(knots)])))
            levels.append(tuple(_rounded(steps)))
            place += len(knots)
        has_vector = vector is not None and len(vector) > 0
        bias = float(found[0]) + offset + (float(vector[0]) if vector is not None and has_vector else 0.0)
        return Head(
            bias=round(bias, 4),
            knots=tuple(tuple(_rounded(knots, 6)) for knots in self._knots),
            levels=tuple(levels),
            words={word: value for word, value in zip(self._words, _rounded(found[place:]), strict=True) if value},
            vector=tuple(_rounded(vector[1:] * _VECTOR_SCALE)) if vector is not None and has_vector else (),
        )


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


def _knots(values: Floats, shares: Floats) -> Floats:
    found: Floats = np.unique(np.quantile(values, shares, method="lower"))
    return np.array([knot for knot in found if knot < values.max()])


def _rounded(values: Floats, digits: int = 4) -> list[float]:
    return [round(float(value), digits) for value in values]
