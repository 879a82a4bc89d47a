"""Confidence: the estimate, from a model's first tokens, that its answer will be good enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from routing_policies.estimation.boosted_trees import logistic
from routing_policies.quality.features import Features
from routing_policies.quality.head import Head

SIGNS: Final = ("prior", "least_logprob", "mean_logprob", "least_margin", "first_logprob", "is_whole")
"""Names of the figures that `signs_of` returns, in order."""
_UNLIKELY: Final = -20.0


class TokenOdds(msgspec.Struct, frozen=True, gc=False):
    """Log-probability and margin of one generated token."""

    logprob: float
    margin: float
    """Log-probability above that of the most likely other token; 0 where none was reported."""


class CascadeCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Scores for an answer at a fixed number of tokens."""

    num_tokens: int
    head: Head

    def probability(self, prior: float, odds: Sequence[TokenOdds], *, is_whole: bool) -> float:
        """Return P(the answer is good enough) from its first tokens; `prior` is the log odds before it began."""
        signs = signs_of(prior, odds, is_whole=is_whole)
        return logistic(self.head.log_odds(Features(signs, set(), [])))


def signs_of(prior: float, odds: Sequence[TokenOdds], *, is_whole: bool) -> list[float]:
    """Return the figures named in SIGNS; `is_whole`: the answer has ended with these tokens."""
    logprobs = [max(token.logprob, _UNLIKELY) for token in odds] or [_UNLIKELY]
    margins = [token.margin for token in odds] or [0.0]
    return [prior, min(logprobs), sum(logprobs) / len(logprobs), min(margins), logprobs[0], float(is_whole)]
