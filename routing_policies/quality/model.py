"""PairModel: everything that was learned of one pair of models, as coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from routing_policies.quality.confidence import CascadeCheckpoint
from routing_policies.quality.features import LENGTH, Features
from routing_policies.quality.guard import NoveltyGuard
from routing_policies.quality.head import Head, chance_of
from routing_policies.quality.memory import NeighbourMemory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT: Final = 3


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


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of work that was told in training."""

    level: float
    """Logit that is common to its prompts."""
    length: float
    """What the squashed length adds; negative where longer prompts are harder, beyond what holds for all kinds."""


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
    offsets: dict[str, float] = {}
    """Of kinds of work what is added to that where the kind is told."""
    embedded: Head | None = None
    """From the features and the embedding."""
    memory: NeighbourMemory | None = None
    """Its values are a part of that."""
    kinds: dict[str, Kind] = {}
    told: Head | None = None
    """Which of a kind's own prompts are easier; added to what `kinds` has of it."""
    away: Head | None = None
    """For a kind of work that was told and never seen: what holds within every known one."""
    encoder: str = ""
    """Whose embedding."""
    guard: NoveltyGuard
    hashes_words: bool = False
    """Its words are hashes, and it is asked about features with hashes for words; see `hashing`."""
    openings: tuple[str, ...] = ()
    """How prompts begin that were learned from; see `preamble`."""
    checkpoints: tuple[CascadeCheckpoint, ...] = ()
    """What the weaker model's first tokens add, for cascades; fewest tokens first."""

    def predict(self, features: Features, vector: NDArray[np.float32] | None = None, *, kind: str = "") -> Prediction:
        """With an embedding of `encoder`'s, or without one; `kind` is the kind of work, where somebody tells it."""
        is_known = self.guard.is_known(features)
        if vector is None or self.embedded is None:
            return Prediction(self.text.logit(features) + self.offsets.get(kind, 0.0), is_known)
        untold, told, away = (0.0, 0.0, 0.0) if self.memory is None else self.memory.recall(vector)
        if kind and self.away is not None and kind not in self.kinds:
            return Prediction(self.away.logit(features, vector) + away, is_known)
        if kind and self.told is not None:
            own = self.kinds[kind]
            level = own.level + own.length * features.numbers[LENGTH]
            return Prediction(self.told.logit(features, vector) + told + level, is_known)
        return Prediction(self.embedded.logit(features, vector) + untold, is_known)
