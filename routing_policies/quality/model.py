"""PairModel: the fitted coefficients of one pair of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from routing_policies.estimation.boosted_trees import logistic
from routing_policies.quality.confidence import CascadeCheckpoint
from routing_policies.quality.features import Features
from routing_policies.quality.general import GeneralHead
from routing_policies.quality.guard import NoveltyGuard
from routing_policies.quality.head import Head
from routing_policies.quality.recognition import KindRecognizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT: Final = 4


class Prediction(msgspec.Struct, frozen=True, gc=False):
    """Predicted quality of the weaker model's answer to one prompt."""

    log_odds: float
    """Log odds that the weaker model's answer is as good as the stronger one's."""
    is_known: bool
    """True if the training had prompts like this one; otherwise the log odds are invalid."""

    @property
    def probability(self) -> float:
        """P(the weaker model is good enough); 0 for a prompt unlike those of the training."""
        return logistic(self.log_odds) if self.is_known else 0.0


class KindCorrection(msgspec.Struct, frozen=True, kw_only=True):
    """Correction of the log odds for a kind of work that the route names and the training contained."""

    scale: float = 1.0
    offsets: dict[str, float] = {}

    def corrected(self, log_odds: float, kind: str) -> float:
        """Return the log odds for the kind; unchanged for an unknown kind."""
        offset = self.offsets.get(kind)
        return log_odds if offset is None else self.scale * log_odds + offset


class PairModel(msgspec.Struct, frozen=True, kw_only=True):
    """Model of the probability that `weak` answers a prompt as well as `strong` does."""

    format: int = FORMAT
    weak: str
    """Names of the weak and the strong model, as deployments have them."""
    strong: str
    trained_on: str
    """Description of the training prompts."""
    num_prompts: int
    text: Head
    """Head that uses the features alone."""
    kinds: KindCorrection = KindCorrection()
    embedded: Head | None = None
    """Head that uses the features and the embedding."""
    embedded_kinds: KindCorrection = KindCorrection()
    encoder: str = ""
    """Id of the encoder whose embedding `embedded` uses."""
    guard: NoveltyGuard
    general: GeneralHead | None = None
    """Head for prompts whose kind no route names; None where the other heads know more than averages of kinds."""
    recognizer: KindRecognizer | None = None
    """Recognizer of the training's kinds of work, whose averages it adds to the general head."""
    calibration_error: float | None = None
    """Mean distance of predicted from observed shares on held-out prompts; None where it was not measured."""
    unnamed_calibration_error: float | None = None
    """`calibration_error` for prompts whose kind no route names; None where it was not measured."""
    hashes_words: bool = False
    """True if the words are hashes, so that the model takes hashed features; see `hashing`."""
    openings: tuple[str, ...] = ()
    """Openings of the training prompts; see `preamble`."""
    checkpoints: tuple[CascadeCheckpoint, ...] = ()
    """Checkpoints of cascades, which score the weaker model's first tokens; fewest tokens first."""

    def predict(self, features: Features, vector: NDArray[np.float32] | None = None, *, kind: str = "") -> Prediction:
        """Return the predicted quality of the weaker model's answer.

        Args:
            features: Features of the prompt; with hashes for words if `hashes_words`.
            vector: Embedding by `encoder`; without one, the features alone are used.
            kind: Kind of work that the route names. Without one, or with one that the training lacked, the general
                head predicts, where there is one.
        """
        is_known = self.guard.is_known(features)
        if self.general is not None and kind not in self.kinds.offsets:
            return Prediction(self.general.log_odds(features) + self._shift(features, kind), is_known)
        if vector is None or self.embedded is None:
            log_odds = self.kinds.corrected(self.text.log_odds(features), kind)
        else:
            log_odds = self.embedded_kinds.corrected(self.embedded.log_odds(features, vector), kind)
        return Prediction(log_odds, is_known)

    def _shift(self, features: Features, kind: str) -> float:
        """Return what a recognized kind adds; nothing where the route names one, which the training lacked."""
        return 0.0 if kind or self.recognizer is None else self.recognizer.shift(features, self.guard.words)
