"""PairOutcome: one prompt in its stored form, with the scores of two models' answers."""

from __future__ import annotations

import msgspec

from routing_policies.quality.confidence import TokenOdds
from routing_policies.quality.features import Features, features_of
from routing_policies.quality.preamble import opening_of
from routing_policies.quality.prompt import Prompt


class PairOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt in its stored form, with the result of comparing two models' answers."""

    features: Features
    lost: float
    """Quality lost by the weaker model, in [-1, 1]: the stronger one's score minus its own."""
    opening: str = ""
    """Opening of the prompt; see `preamble`."""
    category: str = ""
    """Kind of work that the data names; never needed for a prediction."""
    odds: tuple[TokenOdds, ...] = ()
    """Odds of the weaker model's first tokens, if they were stored."""
    num_tokens: int = 0
    """Number of tokens of the weaker model's whole answer, without the end token, which no stream reports."""
    weight: float = 1.0

    @property
    def good(self) -> float:
        """Return the probability, in [0, 1], that nothing was lost."""
        return 1.0 - max(self.lost, 0.0)


def outcome_of(
    prompt: Prompt,
    weak: float,
    strong: float,
    *,
    category: str = "",
    odds: tuple[TokenOdds, ...] = (),
    num_tokens: int = 0,
) -> PairOutcome:
    """Return an outcome from the scores in [0, 1] of the two models' answers."""
    return PairOutcome(
        features=features_of(prompt),
        lost=strong - weak,
        opening=opening_of(prompt.text[:200].split()),
        category=category,
        odds=odds,
        num_tokens=num_tokens,
    )
