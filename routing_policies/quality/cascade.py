"""Inquiry: decides whether a small model's answer that has begun goes on or the large model takes over.

Evaluated at every checkpoint. A clear yes or no ends it early; at the last checkpoint that the route waits for, or at
the answer's end, the probability is compared with the least confidence: the route's `min_quality`, or what labels have
made of it (`thresholds.py`).

    tokens   1    2    4         8          16    24
    yes  ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─   ▸ go on     `sure` of the way from min_confidence to certainty
             (wait)                               ▸ go on from min_confidence, else hand over
    no   ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─   ▸ hand over below `give_up` of min_confidence
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Final, Literal

import msgspec

from routing_policies.quality.confidence import CascadeCheckpoint, TokenOdds

Answer = Literal["go_on", "hand_over"]

DEFAULT_MIN_TOKENS: Final = 8
"""Tokens that a decision without coefficients takes at least: one sure token tells little about an answer."""
DEFAULT_EXPONENT: Final = 1 / 3
"""Exponent from the mean probability of tokens to a quality where no label has shown the relation.

A mean of one half, usual at the border between facts and free invention, then counts as 0.79.
"""
SURE_RATIO: Final = 0.9
GIVE_UP_RATIO: Final = 0.4


class Inquiry(msgspec.Struct, frozen=True):
    """Rules of the cascade's decision about one answer."""

    min_confidence: float
    first_tokens: int
    """Number of tokens after which a decision is due."""
    prior: float = 0.0
    """Log odds from the prompt alone."""
    checkpoints: tuple[CascadeCheckpoint, ...] = ()
    """Fitted checkpoints; without any, the mean probability of the tokens decides."""
    sure: float = SURE_RATIO
    give_up: float = GIVE_UP_RATIO

    def decide(self, odds: Sequence[TokenOdds], *, is_whole: bool) -> Answer | None:
        """Return the decision after these tokens; None to wait for more."""
        is_due = is_whole or len(odds) >= self.first_tokens
        return self.answer(self.probability(odds, is_whole=is_whole), is_due=is_due)

    def answer(self, probability: float | None, *, is_due: bool) -> Answer | None:
        """Return the decision at a probability, None where none is known; None to wait for more.

        Args:
            probability: P(the answer is good enough).
            is_due: True at the last token that the route waits for.
        """
        if is_due:
            return "go_on" if probability is not None and probability >= self.min_confidence else "hand_over"
        if probability is None:
            return None
        if probability >= self.min_confidence + self.sure * (1.0 - self.min_confidence):
            return "go_on"
        return "hand_over" if probability < self.give_up * self.min_confidence else None

    def probability(self, odds: Sequence[TokenOdds], *, is_whole: bool) -> float | None:
        """Return P(the answer is good enough); None without any token."""
        if not odds:
            return None
        if not self.checkpoints:
            return self._default_probability(odds, is_whole=is_whole)
        reached = [point for point in self.checkpoints if point.num_tokens <= len(odds)]
        if is_whole:  # a checkpoint knows answers that ended before it
            reached = [point for point in self.checkpoints if point.num_tokens > len(odds)][:1] or reached
        if not reached:
            return None
        point = reached[-1]
        return point.probability(self.prior, odds[: point.num_tokens], is_whole=is_whole)

    def _default_probability(self, odds: Sequence[TokenOdds], *, is_whole: bool) -> float | None:
        """Return the quality that the tokens' geometric mean probability stands for until labels show better."""
        if not is_whole and len(odds) < min(self.first_tokens, DEFAULT_MIN_TOKENS):
            return None
        return exp(DEFAULT_EXPONENT * sum(min(token.logprob, 0.0) for token in odds) / len(odds))


def default_mean_probability(min_quality: float) -> float:
    """Return the mean probability of tokens that reaches a quality without coefficients."""
    return exp(log(min_quality) / DEFAULT_EXPONENT) if min_quality > 0.0 else 0.0
