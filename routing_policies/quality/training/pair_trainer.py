"""PairTrainer: fits a PairModel to prompts with outcomes.

It is seeded, runs offline for minutes at most, and needs the extra `learning`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from routing_policies.estimation.boosted_trees import scaled_trees
from routing_policies.estimation.tree_fitting import fit_trees, sums_of_trees
from routing_policies.quality.confidence import CascadeCheckpoint, signs_of
from routing_policies.quality.features import Features
from routing_policies.quality.general import GeneralHead
from routing_policies.quality.head import Head
from routing_policies.quality.model import KindCorrection, PairModel
from routing_policies.quality.recognition import KindRecognizer
from routing_policies.quality.training.calibration import (
    calibrated,
    calibration_error,
    doubled_labels,
    probabilities_of,
)
from routing_policies.quality.training.feature_table import FeatureTable, Floats
from routing_policies.quality.training.general_fitting import fitted_general
from routing_policies.quality.training.guarding import fitted_guard
from routing_policies.quality.training.members import (
    Fold,
    Member,
    Stacked,
    cross_fitted,
    linear_member,
    stacked,
)
from routing_policies.quality.training.outcome import PairOutcome
from routing_policies.quality.training.recognizer_fitting import MIN_PROMPTS, fitted_recognizer

CHECKPOINTS: Final = (1, 2, 4, 8, 16, 24)
NUM_FOLDS: Final = 4
TREES: Final[dict[str, Any]] = {
    "max_depth": 4,
    "max_iter": 80,
    "learning_rate": 0.1,
    "l2_regularization": 8.0,
    "min_samples_leaf": 20,
    "max_bins": 63,
}
_FEW_OPENINGS: Final = 2
_RARE_OPENINGS: Final = 2000
"""Reciprocal of the least share of prompts that makes an opening typical; a large corpus contains every beginning."""
_SAME_OPENING: Final = 40
"""Maximum number of prompts with the same opening that are held out together."""
_MIN_WITH_ODDS: Final = 100
"""Minimum number of answers with token odds for fitting checkpoints."""
_CHECKPOINT_KNOTS: Final = 36
_OFFSET_PENALTY: Final = 4.0
"""Penalty on the offsets of kinds of work, which are expected to be about a half."""
_CLEARLY_BETTER: Final = 0.88
"""Largest squared error of heads beside the general head's at which they predict for unnamed kinds too."""
_SCALE_WEIGHT: Final = 8.0
"""Factor on the log odds in the fit, which weakens the penalty on their scale."""
_PENALTIES: Final = (4.0, 64.0)
"""L2 penalties of the linear members; the stronger one suits prompts with little information about outcomes."""
_VECTOR_PENALTY: Final = 1.0


class _Unnamed(NamedTuple):
    """Head and recognizer that predict for prompts whose kind no route names."""

    general: GeneralHead
    recognizer: KindRecognizer
    log_odds: Floats
    """Log odds of each prompt of the training, its kind recognized by a fit without it, [n]."""

    def calibrated(self, good: Floats, weights: Floats) -> _Unnamed:
        """Return a predictor calibrated to `good`, probabilities [n]; the order of prompts is unchanged."""
        scale, bias = calibrated(self.log_odds, good, weights)
        general = GeneralHead(
            bias=round(scale * self.general.bias + bias, 4),
            weights=tuple(round(scale * weight, 4) for weight in self.general.weights),
        )
        shifts = tuple(round(scale * shift, 4) for shift in self.recognizer.shifts)
        recognizer = msgspec.structs.replace(self.recognizer, shifts=shifts)
        return _Unnamed(general, recognizer, scale * self.log_odds + bias)


class PairTrainer:
    """Trainer of one pair; `vectors` are the prompts' embeddings, [n, dimensions], if the encoder is to be used."""

    def __init__(
        self, outcomes: Sequence[PairOutcome], *, vectors: NDArray[np.float32] | None = None, seed: int = 7
    ) -> None:
        self._outcomes = outcomes
        self._vectors = vectors
        self._seed = seed
        self._features = [outcome.features for outcome in outcomes]
        self._targets = np.array([1.0 - outcome.lost for outcome in outcomes])
        """Target of each prompt; above 1 where the weaker model is the better one."""
        self._good = np.clip(self._targets, 0.0, 1.0)
        self._weights = np.array([outcome.weight for outcome in outcomes])
        self._kind_names = np.array([outcome.category for outcome in outcomes])
        self._table = FeatureTable(self._features)
        self._rows = self._table.rows(self._features)
        self._folds = self._wording_folds()

    def fit(self, *, weak: str, strong: str, trained_on: str, encoder: str = "") -> PairModel:
        """Return the model of the pair."""
        text_members = self._text_members()
        text = stacked(text_members, self._targets, self._weights)
        embedded = None if self._vectors is None else self._embedded(text_members, self._vectors)
        kinds = self._kinds(text)
        embedded_kinds = KindCorrection() if embedded is None else self._kinds(embedded[1])
        blend, correction = (text, kinds) if embedded is None else (embedded[1], embedded_kinds)
        unnamed = self._unnamed(blend.unseen)
        return PairModel(
            weak=weak,
            strong=strong,
            trained_on=trained_on,
            num_prompts=len(self._outcomes),
            text=self._head(text_members, text),
            kinds=kinds,
            embedded=None if embedded is None else embedded[0],
            embedded_kinds=embedded_kinds,
            encoder="" if embedded is None else encoder,
            guard=fitted_guard(self._features, self._folds),
            general=None if unnamed is None else unnamed.general,
            recognizer=None if unnamed is None else unnamed.recognizer,
            calibration_error=self._calibration_error(self._given_kinds(blend, correction)),
            unnamed_calibration_error=self._calibration_error(blend.unseen if unnamed is None else unnamed.log_odds),
            openings=self._openings(),
            checkpoints=self._checkpoints(text.unseen),
        )

    def _wording_folds(self) -> list[Fold]:
        """Return folds that hold out equal prompts and those of one opening together: the others are new wordings."""
        seen: Counter[str] = Counter()
        block_of: dict[Any, str] = {}
        blocks: list[str] = []
        for outcome in self._outcomes:
            content, opening = (*outcome.features.numbers, frozenset(outcome.features.words)), outcome.opening
            block = f"{opening} {seen[opening] // _SAME_OPENING}" if opening else str(len(blocks))
            blocks.append(block_of.setdefault(content, block))
            seen[opening] += 1
        if len(set(blocks)) < NUM_FOLDS:
            blocks = [str(number) for number in range(len(blocks))]
        splits = GroupKFold(NUM_FOLDS, shuffle=True, random_state=self._seed).split(blocks, groups=blocks)
        return [np.isin(np.arange(len(blocks)), out) for _, out in splits]

    def _text_members(self) -> list[Member]:
        """Return models of the features alone; the last one is the trees."""
        return [*(self._linear(self._rows, penalty) for penalty in _PENALTIES), self._grown()]

    def _linear(self, rows: Any, penalty: float) -> Member:
        return linear_member(rows, self._targets, self._weights, self._folds, penalty=penalty)

    def _grown(self) -> Member:
        """Return the member of trees, for effects that need several numbers together."""
        numbers = np.array([features.numbers for features in self._features])

        def fit(fold: Fold) -> Any:
            labels, sizes, doubled = doubled_labels(self._targets[fold], self._weights[fold])
            rows = np.concatenate((numbers[fold], numbers[fold]))[doubled]
            return fit_trees(rows, labels, sizes, random_state=self._seed, **TREES)

        return cross_fitted(
            fit, lambda found, out: sums_of_trees(found[0], found[1], numbers[out]), len(numbers), self._folds
        )

    def _embedded(self, text: Sequence[Member], vectors: NDArray[np.float32]) -> tuple[Head, Stacked]:
        """Return a head that uses the embedding too, and its stacked members."""
        member = self._linear(vectors.astype(np.float64), _VECTOR_PENALTY)
        blend = stacked([*text, member], self._targets, self._weights)
        vector, bias = _summed(blend.weights[len(text) :], [member], vectors.shape[1])
        return self._head(text, blend, bias=bias, vector=vector), blend

    def _head(self, text: Sequence[Member], blend: Stacked, *, bias: float = 0.0, vector: Floats | None = None) -> Head:
        """Return the text's members as one head; `bias` and `vector` are the parts of further members."""
        coefficients, linear_bias = _summed(blend.weights[: len(text) - 1], text[:-1], self._table.num_columns)
        tree_bias, trees = text[-1].whole
        tree_weight = float(blend.weights[len(text) - 1])
        bias += blend.bias + linear_bias + tree_weight * tree_bias
        return self._table.head(bias, coefficients, vector=vector, trees=scaled_trees(trees, tree_weight))

    def _kinds(self, blend: Stacked) -> KindCorrection:
        """Return the correction of the log odds for a known category, calibrated; with few prompts it tends to 0.

        A category of too few prompts to be recognized counts as new.
        """
        kinds = self._kind_names
        names, counts = np.unique(kinds[kinds != ""], return_counts=True)
        names = names[counts >= MIN_PROMPTS]
        if not len(names):
            return KindCorrection()
        labels, sizes, doubled = doubled_labels(self._targets, self._weights)
        rows = np.column_stack((_SCALE_WEIGHT * blend.unseen, kinds[:, None] == names))
        line = LogisticRegression(C=1.0 / _OFFSET_PENALTY, max_iter=300)
        line.fit(np.concatenate((rows, rows))[doubled], labels, sample_weight=sizes)
        scale, *offsets = (line.coef_[0] + [0.0, *[line.intercept_[0]] * len(names)]).tolist()
        corrected = KindCorrection(
            scale=_SCALE_WEIGHT * scale, offsets=dict(zip(map(str, names), offsets, strict=True))
        )
        named = np.isin(kinds, names)
        ratio, bias = calibrated(self._given_kinds(blend, corrected)[named], self._good[named], self._weights[named])
        found = {name: round(ratio * offset + bias, 4) for name, offset in corrected.offsets.items()}
        return KindCorrection(scale=round(ratio * corrected.scale, 4), offsets=found)

    def _given_kinds(self, blend: Stacked, correction: KindCorrection) -> Floats:
        """Return the log odds of held-out prompts whose kinds of work are named, [n]."""
        pairs = zip(blend.unseen.tolist(), self._kind_names.tolist(), strict=True)
        return np.array([correction.corrected(log_odds, kind) for log_odds, kind in pairs])

    def _calibration_error(self, log_odds: Floats) -> float:
        return round(calibration_error(probabilities_of(log_odds), self._good), 4)

    def _unnamed(self, unseen: Floats) -> _Unnamed | None:
        """Return what predicts for unnamed kinds; None where the heads, with log odds `unseen`, are clearly better.

        Heads that know averages of kinds and little more order prompts of other kinds worse than their length does.
        """
        kinds = self._kind_names
        general = fitted_general(self._features, self._targets, self._weights, kinds)
        log_odds = np.array([general.log_odds(features) for features in self._features])
        found = fitted_recognizer(self._features, kinds, self._good, log_odds, seed=self._seed)
        if found is None:
            return None
        recognizer, shifts = found
        unnamed = _Unnamed(general, recognizer, log_odds + shifts)
        if self._squared_error(unseen) < _CLEARLY_BETTER * self._squared_error(unnamed.log_odds):
            return None
        return unnamed.calibrated(self._good, self._weights)

    def _squared_error(self, log_odds: Floats) -> float:
        return float(np.average((self._good - probabilities_of(log_odds)) ** 2, weights=self._weights))

    def _openings(self) -> tuple[str, ...]:
        counts = Counter(outcome.opening for outcome in self._outcomes)
        few = max(_FEW_OPENINGS, round(len(self._outcomes) / _RARE_OPENINGS))
        return tuple(sorted(opening for opening, count in counts.items() if opening and count >= few))

    def _checkpoints(self, priors: Floats) -> tuple[CascadeCheckpoint, ...]:
        with_odds = np.flatnonzero([len(outcome.odds) > 0 for outcome in self._outcomes])
        if len(with_odds) < _MIN_WITH_ODDS:
            return ()
        return tuple(self._checkpoint(num, priors, with_odds) for num in CHECKPOINTS)

    def _checkpoint(self, num_tokens: int, priors: Floats, with_odds: NDArray[np.int64]) -> CascadeCheckpoint:
        """Fit a checkpoint to answers with more than `num_tokens` tokens or a shorter end.

        An answer of exactly that many tokens equals, at the checkpoint, one that continues.
        """
        signs = []
        for row in with_odds:
            outcome = self._outcomes[row]
            is_whole = outcome.num_tokens < num_tokens
            signs_of_row = signs_of(float(priors[row]), outcome.odds[:num_tokens], is_whole=is_whole)
            signs.append(Features(signs_of_row, set(), []))
        table = FeatureTable(signs, max_knots=_CHECKPOINT_KNOTS)
        good = self._good[with_odds]
        member = linear_member(table.rows(signs), good, self._weights[with_odds], [], penalty=_PENALTIES[0])
        bias, found = float(member.whole.intercept_[0]), np.ravel(member.whole.coef_)
        return CascadeCheckpoint(num_tokens=num_tokens, head=table.head(bias, found))


def _summed(weights: Floats, members: Sequence[Member], num_columns: int) -> tuple[Floats, float]:
    """Return the coefficients and the bias of linear members as one sum."""
    coefficients, bias = np.zeros(num_columns), 0.0
    for weight, member in zip(weights, members, strict=True):
        coefficients += weight * np.ravel(member.whole.coef_)
        bias += float(weight * member.whole.intercept_[0])
    return coefficients, bias
