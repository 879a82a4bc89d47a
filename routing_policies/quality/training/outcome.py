"""PairOutcome: one prompt, as far as it is kept, and what two models made of it."""

from __future__ import annotations

import msgspec

from routing_policies.quality.confidence import TokenOdds
from routing_policies.quality.features import Features, features_of
from routing_policies.quality.preamble import opening_of
from routing_policies.quality.prompt import Prompt


class PairOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt, as far as it is kept, and what the two models made of it."""

    features: Features
    lost: float
    """Loss by asking the weaker model, in [-1, 1]: the stronger one's score less its own."""
    opening: str = ""
    """Opening of the prompt; see `preamble`."""
    category: str = ""
    """Kind of work, where the data says so; never needed for a prediction."""
    odds: tuple[TokenOdds, ...] = ()
    """Odds of the weaker model's first tokens, where they were kept."""
    num_tokens: int = 0
    """Tokens of its whole answer, without the one that ends it: no stream tells of that."""
    weight: float = 1.0

    @property
    def good(self) -> float:
        """Return the chance, in [0, 1], that nothing was lost."""
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
