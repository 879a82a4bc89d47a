"""Thresholds of a cascade, chosen from outcomes for a stated loss of quality or a stated share of large calls.

A case is one prompt with its outcomes, and the confidences in the small model's answer by a fit without this prompt.
Every pair of thresholds on a grid is applied to all cases, token by token as the gateway does.

    max_loss       ─▶ of the pairs that lose no more, the one with the fewest large calls
    large_share    ─▶ of the pairs with no more large calls, the one that loses least

Figures of the very cases that a choice was made on flatter it. So the report comes from choices on the other folds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from routing_policies.quality.cascade import Inquiry
from routing_policies.quality.confidence import CascadeCheckpoint
from routing_policies.quality.model import Prediction
from routing_policies.quality.training.outcome import PairOutcome

FIRST_TOKENS: Final = 24
"""Tokens after which the chosen cascade decides: the last checkpoint of a trained pair."""
_SKIP_BELOW: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Least predicted qualities with which the small model is tried; above 0, so that it is never tried on the unknown."""
_NUM_QUALITIES: Final = 40
_ALIKE: Final = 0.005
"""Difference of large calls or of loss within which a choice skips more prompts, because a hand-over costs time."""
_QUANTILE_95: Final = 1.96

Booleans = NDArray[np.bool_]


class CascadeCase(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt, what a cascade would know of it, and the scores of both answers."""

    quality: float
    """Quality of the small model's answer that is predicted from the prompt; 0 for an unknown prompt."""
    confidences: tuple[float | None, ...]
    """Confidences after 1, 2, … tokens, at least one; None where it shows nothing yet."""
    whole: float | None
    """Confidence in the whole answer; None for an answer that goes on behind the last of these tokens."""
    small: float
    large: float
    fold: int
    """Number of the fit that this prompt had no part in."""


class CascadeGoal(msgspec.Struct, frozen=True, kw_only=True):
    """What thresholds are chosen for: exactly one of the two."""

    max_loss: float | None = None
    """Share of the large model's score that may be lost."""
    large_share: float | None = None
    """Share of the requests that the large model may answer."""


class CascadeRule(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds of a route."""

    min_quality: float
    skip_below: float

    def large_calls(self, cases: Sequence[CascadeCase]) -> list[bool]:
        """Return for each case whether the client gets the large model's answer."""
        inquiry = Inquiry(self.min_quality, FIRST_TOKENS)
        return [case.quality < self.skip_below or not _goes_on(inquiry, case) for case in cases]


class CascadeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Chosen thresholds, and what thresholds that are chosen in this way do to prompts outside the choice."""

    rule: CascadeRule
    num_cases: int
    large_share: float
    """Share of the requests that the large model answers."""
    loss: float
    """Share of the large model's score that is lost, with its 95 % interval."""
    loss_low: float
    loss_high: float
    random_loss: float
    """Loss of a random choice with as many large calls."""


def case_of(
    outcome: PairOutcome,
    prediction: Prediction,
    checkpoints: tuple[CascadeCheckpoint, ...],
    *,
    scores: tuple[float, float],
    fold: int,
) -> CascadeCase:
    """Return the case of an outcome with token odds.

    Args:
        outcome: The outcome.
        prediction: What a fit without this prompt predicts.
        checkpoints: The checkpoints of that fit.
        scores: The scores of the weaker and the stronger model, each in [0, 1].
        fold: The number of that fit.
    """
    odds = outcome.odds[:FIRST_TOKENS]
    inquiry = Inquiry(0.0, FIRST_TOKENS, prediction.log_odds, checkpoints)
    return CascadeCase(
        quality=prediction.probability,
        confidences=tuple(inquiry.probability(odds[:num], is_whole=False) for num in range(1, len(odds) + 1)),
        whole=inquiry.probability(odds, is_whole=True) if outcome.num_tokens <= len(odds) else None,
        small=scores[0],
        large=scores[1],
        fold=fold,
    )


def choose_cascade(cases: Sequence[CascadeCase], goal: CascadeGoal) -> CascadeChoice:
    """Return the thresholds that suit the goal, with figures of held-out cases; there are at least two folds."""
    small, large = (np.array([getattr(case, name) for case in cases]) for name in ("small", "large"))
    rules = _rules(cases)
    is_large = np.array([rule.large_calls(cases) for rule in rules])
    folds = np.array([case.fold for case in cases])
    held_out = np.zeros(len(cases), dtype=np.bool_)
    for fold in np.unique(folds):
        rest = folds != fold
        number = _best(rules, is_large[:, rest], (large - small)[rest], float(large[rest].mean()), goal)
        held_out[~rest] = is_large[number, ~rest]
    lost = np.where(held_out, 0.0, large - small) / large.mean()
    loss, half_width = float(lost.mean()), _QUANTILE_95 * float(lost.std(ddof=1)) / math.sqrt(len(lost))
    large_share = float(held_out.mean())
    return CascadeChoice(
        rule=rules[_best(rules, is_large, large - small, float(large.mean()), goal)],
        num_cases=len(cases),
        large_share=large_share,
        loss=loss,
        loss_low=loss - half_width,
        loss_high=loss + half_width,
        random_loss=(1.0 - large_share) * float((large - small).mean() / large.mean()),
    )


def _goes_on(inquiry: Inquiry, case: CascadeCase) -> bool:
    for num_tokens, confidence in enumerate(case.confidences, 1):
        answer = inquiry.answer(confidence, is_due=num_tokens >= FIRST_TOKENS)
        if answer is not None:
            return answer == "go_on"
    return inquiry.answer(case.whole, is_due=True) == "go_on"


def _rules(cases: Sequence[CascadeCase]) -> list[CascadeRule]:
    """Return the grid: qualities that divide the cases by their last confidence into equal parts, and always large."""
    last = [case.confidences[-1] if case.whole is None else case.whole for case in cases]
    known = [confidence for confidence in last if confidence is not None] or [0.5]
    quantiles = np.quantile(known, np.linspace(0.0, 1.0, _NUM_QUALITIES))
    qualities = sorted({0.0, 1.0, *(round(float(one), 3) for one in quantiles)})
    return [
        CascadeRule(min_quality=min_quality, skip_below=skip_below)
        for min_quality, skip_below in product(qualities, _SKIP_BELOW)
    ]


def _best(
    rules: Sequence[CascadeRule], is_large: Booleans, gaps: NDArray[np.float64], large_mean: float, goal: CascadeGoal
) -> int:
    """Return the number of the best rule; where none keeps to the goal, of the one that comes nearest.

    Args:
        rules: The grid.
        is_large: What each rule does to each case, [rules, cases].
        gaps: Score of the large model's answer above the small one's, [cases].
        large_mean: Mean score of the large model.
        goal: The goal.
    """
    shares = is_large.mean(axis=1)
    losses = np.where(is_large, 0.0, gaps).mean(axis=1) / large_mean
    if goal.max_loss is not None:
        bounded, limit, minimized = losses, goal.max_loss, shares
    else:
        assert goal.large_share is not None, "a goal has one of the two"
        bounded, limit, minimized = shares, goal.large_share, losses
    allowed = np.flatnonzero(bounded <= max(limit, float(bounded.min())))
    least = float(minimized[allowed].min())
    alike = [number for number in allowed.tolist() if minimized[number] <= least + _ALIKE]
    return max(alike, key=lambda number: (rules[number].skip_below, -minimized[number]))
