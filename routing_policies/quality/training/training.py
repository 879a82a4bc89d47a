"""Training: from prompts with outcomes to a PairModel. Seeded, offline, minutes at most."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from routing_policies.quality.confidence import CascadeCheckpoint, signs_of
from routing_policies.quality.features import Features
from routing_policies.quality.head import Head
from routing_policies.quality.memory import NeighbourMemory
from routing_policies.quality.model import Kind, PairModel
from routing_policies.quality.outcome import PairOutcome
from routing_policies.quality.training.boosting import grown
from routing_policies.quality.training.guarding import fitted_guard
from routing_policies.quality.training.logistic import Floats, fit_logistic
from routing_policies.quality.training.members import (
    NUM_FOLDS,
    Blend,
    Fold,
    Member,
    across_groups,
    centred,
    fitted,
    fitted_within,
    found_within,
    slopes_of,
    within_groups,
)
from routing_policies.quality.training.nearest import Space
from routing_policies.quality.training.table import Columns, FeatureTable
from routing_policies.quality.trees import PromptTree, scaled_tree

CHECKPOINTS: Final = (1, 2, 4, 8, 16, 24)
_FEW_OPENINGS: Final = 2
_RARE_OPENINGS: Final = 2000
"""Of so many prompts one says nothing of how prompts begin: among very many there is every beginning."""
_SAME_OPENING: Final = 40
"""So many prompts that open alike are left out together."""
_FEW_TOLD: Final = 100
"""Answers that tell of their tokens: with fewer there is nothing to learn of them."""
_FEW_CATEGORIES: Final = 3
_CATEGORY_PULL: Final = 10.0
"""So many prompts like the average are added to each category."""
_KIND_RIDGE: Final = 0.125
"""What a category comes to is no single prompt's chance: there is little to be careful of."""
_OFFSET_RIDGE: Final = 4.0
"""Offsets of kinds of work are expected to be about a half."""
_OFFSET_STEPS: Final = 20
_AWAY_RIDGE: Final = 25_600.0
"""What carries over from kinds of work to another is faint: a few directions of the embedding."""
_AWAY_LENGTH: Final = 0.2
"""So loud, beside those: longer is harder in most kinds of work, and easier in some."""
_RIDGE_SCALES: Final = (1.0, 8.0, 64.0)
"""The stronger ones are for prompts that tell little of their outcomes."""


class _Embedded(NamedTuple):
    """What is made with embeddings at hand."""

    head: Head
    memory: NeighbourMemory
    told: Head | None
    kinds: dict[str, Kind]
    away: Head | None


class PairTrainer:
    """Fits one pair; `vectors` are the prompts' embeddings, a row each, where the encoder is to be used."""

    def __init__(
        self, outcomes: Sequence[PairOutcome], *, vectors: NDArray[np.float32] | None = None, seed: int = 7
    ) -> None:
        self._outcomes = outcomes
        self._vectors = vectors
        self._rng = random.Random(seed)
        features = [outcome.features for outcome in outcomes]
        self._features = features
        self._targets = np.array([outcome.good for outcome in outcomes])
        self._kept = np.array([1.0 - outcome.lost for outcome in outcomes])
        """Where the weaker model is the better one too: above 1 there. What matters in the end, and noisier."""
        self._weights = np.array([outcome.weight for outcome in outcomes])
        self._table = FeatureTable(features, vectors)
        self._rows = self._table.rows(features, vectors)
        self._folds = self._wording_folds()
        self._groups = _numbered([outcome.category for outcome in outcomes])
        self._expected = self._by_category()

    def fit(self, *, weak: str, strong: str, trained_on: str, encoder: str = "") -> PairModel:
        """The model of the pair."""
        members = self._text_members()
        grown_from, trees = self._grown()
        text = self._blended([*members, grown_from], is_faint=False)
        embedded = None if self._vectors is None else self._embedded(members, self._vectors)
        return PairModel(
            weak=weak,
            strong=strong,
            trained_on=trained_on,
            num_prompts=len(self._outcomes),
            text=self._table.head(text.found, scaled_tree(trees, float(text.weights[-1]))),
            offsets=self._offsets(text),
            embedded=None if embedded is None else embedded.head,
            memory=None if embedded is None else embedded.memory,
            kinds={} if embedded is None else embedded.kinds,
            told=None if embedded is None else embedded.told,
            away=None if embedded is None else embedded.away,
            encoder="" if embedded is None else encoder,
            guard=fitted_guard(self._features, self._folds),
            openings=self._openings(),
            checkpoints=self._checkpoints(text.unseen),
        )

    def _wording_folds(self) -> Fold:
        """Prompts that open alike are left out together, so that what is unseen is worded otherwise too."""
        seen: Counter[str] = Counter()
        fold_of: dict[tuple[str, int], int] = {}
        found: list[int] = []
        for outcome in self._outcomes:
            block = (outcome.opening, seen[outcome.opening] // _SAME_OPENING if outcome.opening else len(found))
            seen[outcome.opening] += 1
            found.append(fold_of.setdefault(block, self._rng.randrange(NUM_FOLDS)))
        return Fold(np.array(found))

    def _by_category(self) -> Floats | None:
        """Of each prompt what its category comes to, where there are some."""
        num_groups = int(self._groups.max()) + 1
        if num_groups < _FEW_CATEGORIES:
            return None
        mean = float(np.average(self._kept, weights=self._weights))
        sums = np.bincount(self._groups, self._weights * self._kept) + _CATEGORY_PULL * mean
        counts = np.bincount(self._groups, self._weights) + _CATEGORY_PULL
        return np.asarray(np.clip(sums / counts, 0.0, 1.0)[self._groups], dtype=np.float64)

    def _offsets(self, text: Blend) -> dict[str, float]:
        """Of each kind of work what good answers are likelier by than its texts say; drawn to 0 where they are few."""
        kinds = np.array([outcome.category for outcome in self._outcomes])
        found = {}
        for kind in np.unique(kinds[kinds != ""]):
            own = kinds == kind
            logits, targets, weights = text.unseen[own], self._kept[own], self._weights[own]
            found[str(kind)] = round(_offset(logits, targets, weights), 4)
        return found

    def _openings(self) -> tuple[str, ...]:
        counts = Counter(outcome.opening for outcome in self._outcomes)
        few = max(_FEW_OPENINGS, round(len(self._outcomes) / _RARE_OPENINGS))
        return tuple(sorted(opening for opening, count in counts.items() if opening and count >= few))

    def _columns(self, *kinds: Columns) -> Columns:
        return np.concatenate((self._table.intercept, *kinds))

    def _fitted(self, columns: Columns, targets: Floats, scale: float = 1.0) -> Member:
        return fitted(self._rows, columns, self._table.ridge() * scale, targets, self._weights, self._folds)

    def _text_members(self) -> list[Member]:
        """From the features alone."""
        table = self._table
        columns = self._columns(table.length, table.steps, table.words)
        tried = [self._fitted(columns, self._targets, scale) for scale in _RIDGE_SCALES]
        members = [min(tried, key=lambda member: self._loss(member.unseen))]
        members.append(self._fitted(self._columns(table.steps), self._targets, 8.0))
        if self._expected is not None:
            members.append(self._fitted(columns, self._expected, _KIND_RIDGE))
        return members

    def _grown(self) -> tuple[Member, tuple[PromptTree, ...]]:
        """From what comes together in the figures; no sum of columns but for what is said before the first tree."""
        numbers = np.array([features.numbers for features in self._features])
        unseen, trees = grown(numbers, self._kept, self._weights, self._folds)
        found = np.zeros(self._table.num_columns)
        found[self._table.intercept] = trees.bias
        return Member(unseen, found), trees.trees

    def _embedded(self, text: list[Member], vectors: NDArray[np.float32]) -> _Embedded:
        table, expected = self._table, self._expected
        within = np.concatenate((table.steps, table.parts))
        space = Space(vectors)
        neighbours = space.neighbours(self._folds)
        own = [
            *text[:2],
            self._fitted(self._columns(table.parts), self._targets),
            fitted_within(self._rows, within, self._targets, self._groups, self._folds),
            self._shortness(),
            self._recalled(neighbours, self._targets),
        ]
        if expected is None:
            untold = self._blended(own)
            values = np.stack([untold.weights[-1] * self._targets] * 2, axis=1)
            return _Embedded(table.head(untold.found), space.memory(values, self._rng), None, {}, None)
        both = self._columns(table.length, table.steps, table.words, table.parts)
        by_kind = [text[-1], self._fitted(both, expected, _KIND_RIDGE), self._recalled(neighbours, expected)]
        untold = self._blended([*own, *by_kind])
        told = within_groups(own, self._targets, self._weights, self._groups)
        values = untold.weights[len(own) - 1] * self._targets + untold.weights[-1] * expected
        memory = space.memory(np.stack([values, told.weights[-1] * self._targets], axis=1), self._rng)
        return _Embedded(table.head(untold.found), memory, table.head(told.found), self._kinds(told), self._away())

    def _recalled(self, neighbours: NDArray[np.int64], values: Floats) -> Member:
        """What became of the nearest; no sum of columns."""
        return Member(values[neighbours].mean(axis=1), np.zeros(self._table.num_columns))

    def _kinds(self, told: Blend) -> dict[str, Kind]:
        """Of each kind of work: what its chance comes to, less what its prompts come to without it; and whether long
        prompts of this kind are harder than those of others, as far as that is not chance."""
        assert self._expected is not None, "there are kinds"
        chances = np.clip(self._expected, 0.02, 0.98)
        spread = chances * (1.0 - chances)
        left = self._kept - self._expected - centred(told.unseen, self._groups) * spread
        lengths = centred(np.asarray(self._rows[:, 1], dtype=np.float64), self._groups)
        slopes = slopes_of(lengths, left, self._groups) / np.bincount(self._groups, spread) * np.bincount(self._groups)
        levels = np.log(chances / (1.0 - chances)) - told.unseen
        found = {}
        for group, name in enumerate(np.unique([outcome.category for outcome in self._outcomes])):
            members = self._groups == group
            slope = float(slopes[group])
            level = float(levels[members].mean()) - slope * float(self._rows[members, 1].mean())
            found[str(name)] = Kind(level=round(level, 4), length=round(slope, 4))
        return found

    def _away(self) -> Head:
        """For prompts of a kind that was never seen: what told the prompts of each known kind apart, whichever it was,
        and a little by length. Which kinds are harder says nothing of a new one, and neither do its neighbours."""
        table = self._table
        found = found_within(self._rows, table.parts, self._kept, self._groups, _AWAY_RIDGE)
        longer = self._shortness()
        told, length = (float(centred(said, self._groups).std()) for said in (self._rows @ found, longer.unseen))
        mean = float(np.clip(np.average(self._kept, weights=self._weights), 0.05, 0.95))
        found += longer.found * (_AWAY_LENGTH * told / max(length, 1e-9))
        found /= mean * (1.0 - mean)  # from chances to logits
        found[0] += np.log(mean / (1.0 - mean)) - float((self._rows @ found).mean())
        return table.head(found)

    def _shortness(self) -> Member:
        """What is longer is harder: needs no fitting."""
        found = np.zeros(self._table.num_columns)
        found[self._table.length] = -1.0
        return Member(self._rows @ found, found)

    def _blended(self, members: Sequence[Member], *, is_faint: bool = True) -> Blend:
        """Right on average for prompts that the members were not fitted on."""
        return across_groups(members, self._targets, self._kept, self._weights, is_faint=is_faint)

    def _loss(self, logits: Floats) -> float:
        chances = np.clip(1.0 / (1.0 + np.exp(-np.clip(logits, -30.0, 30.0))), 1e-6, 1.0 - 1e-6)
        targets = self._targets
        return float(-(self._weights * (targets * np.log(chances) + (1 - targets) * np.log(1 - chances))).mean())

    def _checkpoints(self, priors: Floats) -> tuple[CascadeCheckpoint, ...]:
        told = np.flatnonzero([len(outcome.odds) > 0 for outcome in self._outcomes])
        if len(told) < _FEW_TOLD:
            return ()
        return tuple(self._checkpoint(num, priors, told) for num in CHECKPOINTS)

    def _checkpoint(self, num_tokens: int, priors: Floats, told: NDArray[np.int64]) -> CascadeCheckpoint:
        """Of answers that went on for so many tokens or ended before. One that ends with just as many looks, when it is
        asked about, like one that goes on."""
        signs = []
        for row in told:
            outcome = self._outcomes[row]
            is_whole = outcome.num_tokens < num_tokens
            told_of = signs_of(float(priors[row]), outcome.odds[:num_tokens], is_whole=is_whole)
            signs.append(Features(told_of, set(), []))
        table = FeatureTable(signs, max_knots=36)
        found = fit_logistic(table.rows(signs), self._targets[told], table.ridge(), self._weights[told])
        return CascadeCheckpoint(num_tokens=num_tokens, head=table.head(found))


def _offset(logits: Floats, targets: Floats, weights: Floats) -> float:
    """What is to be added to all logits alike."""
    shifted = 0.0
    for _ in range(_OFFSET_STEPS):
        chances = 1.0 / (1.0 + np.exp(-np.clip(logits + shifted, -30.0, 30.0)))
        slope = float((weights * (chances - targets)).sum()) + _OFFSET_RIDGE * shifted
        shifted -= slope / (float((weights * chances * (1.0 - chances)).sum()) + _OFFSET_RIDGE)
    return shifted


def _numbered(names: Sequence[str]) -> NDArray[np.int64]:
    """A number for each name, from 0."""
    return np.unique(np.array(names), return_inverse=True)[1]
