"""PairModel: everything that was learned of one pair of models, as coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from routing_policies.estimation.boosted_trees import logistic
from routing_policies.quality.confidence import CascadeCheckpoint
from routing_policies.quality.features import Features
from routing_policies.quality.guard import NoveltyGuard
from routing_policies.quality.head import Head

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT: Final = 4


class Prediction(msgspec.Struct, frozen=True, gc=False):
    """The expectation of the weaker model's answer to one prompt."""

    log_odds: float
    """Log odds that the weaker model's answer is as good as the stronger one's."""
    is_known: bool
    """False: nothing in the training was like this prompt, so the log odds mean nothing."""

    @property
    def chance(self) -> float:
        """P(the weaker model is good enough); 0 for a prompt that is not known."""
        return logistic(self.log_odds) if self.is_known else 0.0


class KindCorrection(msgspec.Struct, frozen=True, kw_only=True):
    """Corrects log odds for a kind of work that the route tells and the training knew."""

    scale: float = 1.0
    offsets: dict[str, float] = {}

    def corrected(self, log_odds: float, kind: str) -> float:
        """Return the log odds for the kind; those of an unknown one stay."""
        offset = self.offsets.get(kind)
        return log_odds if offset is None else self.scale * log_odds + offset


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
    """Looks at the features alone."""
    kinds: KindCorrection = KindCorrection()
    embedded: Head | None = None
    """Looks at the features and the embedding."""
    embedded_kinds: KindCorrection = KindCorrection()
    encoder: str = ""
    """Id of the encoder whose embedding that is."""
    guard: NoveltyGuard
    hashes_words: bool = False
    """Its words are hashes, and it takes features with hashes for words; see `hashing`."""
    openings: tuple[str, ...] = ()
    """Openings of the training prompts; see `preamble`."""
    checkpoints: tuple[CascadeCheckpoint, ...] = ()
    """They score the weaker model's first tokens, for cascades; fewest tokens first."""

    def predict(self, features: Features, vector: NDArray[np.float32] | None = None, *, kind: str = "") -> Prediction:
        """Return what is expected of the weaker model.

        Args:
            features: Of the prompt; with hashes for words where the model has those.
            vector: Embedding of `encoder`; without one the features have to do.
            kind: Kind of work, where the route tells it; one that the training had none of changes nothing.
        """
        if vector is None or self.embedded is None:
            log_odds = self.kinds.corrected(self.text.log_odds(features), kind)
        else:
            log_odds = self.embedded_kinds.corrected(self.embedded.log_odds(features, vector), kind)
        return Prediction(log_odds, self.guard.is_known(features))
