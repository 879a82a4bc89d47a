"""PairModel: everything that was learned of one pair of models, as coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from routing_policies.quality.confidence import Checkpoint
from routing_policies.quality.features import Features
from routing_policies.quality.guard import Guard
from routing_policies.quality.head import Head, chance_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT: Final = 1


class Prediction(msgspec.Struct, frozen=True, gc=False):
    """What is expected of the weaker model's answer to one prompt."""

    logit: float
    """Of the chance that its answer is as good as the stronger one's."""
    is_known: bool
    """False: there was nothing like this prompt to learn from, so the logit means nothing."""

    @property
    def chance(self) -> float:
        """In [0, 1]; 0 for a prompt that is not known."""
        return chance_of(self.logit) if self.is_known else 0.0


class PairModel(msgspec.Struct, frozen=True, kw_only=True):
    """For an ordered pair: the chance that `weak` answers a prompt as well as `strong` does."""

    format: int = FORMAT
    weak: str
    """Model names, as deployments have them."""
    strong: str
    trained_on: str
    """Which prompts, in words."""
    num_prompts: int
    text: Head
    """From the features alone."""
    embedded: Head | None = None
    """From the features and the embedding."""
    encoder: str = ""
    """Whose embedding."""
    guard: Guard
    hashes_words: bool = False
    """Its words are hashes, and it is asked about features with hashes for words; see `hashing`."""
    openings: tuple[str, ...] = ()
    """How prompts begin that were learned from; see `preamble`."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """What the weaker model's first tokens add, for cascades; fewest tokens first."""

    def predict(self, features: Features, vector: NDArray[np.float32] | None = None) -> Prediction:
        """With an embedding of `encoder`'s, or without one."""
        if vector is None or self.embedded is None:
            return Prediction(self.text.logit(features), self.guard.is_known(features))
        return Prediction(self.embedded.logit(features, vector), self.guard.is_known(features, vector))
