"""Predictor: one pair's model with its memory of the beginnings of prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from routing_policies.quality.features import Features, features_of
from routing_policies.quality.hashing import hashed_features
from routing_policies.quality.model import FORMAT, PairModel, Prediction
from routing_policies.quality.preamble import PreambleMemory
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.thresholds import CascadeThresholds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class BadModel(ValueError):
    """File of coefficients is invalid; the message gives the reason."""


class QualityAssessment(msgspec.Struct, frozen=True, gc=False):
    """Prediction with its inputs."""

    prediction: Prediction
    features: Features
    kind: str = ""
    """Kind of work that the route names."""


class Predictor:
    """Predictor that applies the pair's model to prompts without their preambles."""

    __slots__ = ("_memory", "base", "model")

    def __init__(self, model: PairModel) -> None:
        """Begin with a model, which stays the `base` that later models are compared with."""
        self.model = self.base = model
        self._memory = PreambleMemory(model.openings)

    @property
    def pair(self) -> tuple[str, str]:
        """Names of the weak and the strong model."""
        return self.model.weak, self.model.strong

    @property
    def encoder(self) -> str:
        """Id of the encoder whose embeddings the model can use; empty for features alone."""
        return self.model.encoder if self.model.embedded is not None else ""

    def adopt(self, model: PairModel) -> None:
        """Replace the model by another one of the same pair."""
        if model is not self.model:
            self.model = model
            self._memory = PreambleMemory(model.openings)

    def assess(self, prompt: Prompt, vector: NDArray[np.float32] | None = None) -> QualityAssessment:
        """Return the prediction for a prompt; an embedding is ignored if the text had a preamble."""
        text = self._memory.strip(prompt.text, prompt.sender)
        if text is not prompt.text:
            num_chars = prompt.num_chars - len(prompt.text) + len(text)
            prompt, vector = msgspec.structs.replace(prompt, text=text, num_chars=num_chars), None
        features = features_of(prompt)
        hashed = hashed_features(features) if self.model.hashes_words else features
        return QualityAssessment(self.model.predict(hashed, vector, kind=prompt.kind), features, prompt.kind)


class Predictors:
    """Predictors by pair of model names; of two for the same pair, the later one counts."""

    __slots__ = ("_by_pair", "thresholds")

    def __init__(self, models: Iterable[PairModel] = ()) -> None:
        self.thresholds = CascadeThresholds()
        """Confidences from which a cascade passes answers on, for pairs with and without a predictor."""
        self._by_pair = {(model.weak, model.strong): Predictor(model) for model in models}

    def __len__(self) -> int:
        return len(self._by_pair)

    def __iter__(self) -> Iterator[Predictor]:
        return iter(self._by_pair.values())

    def find(self, weak: str, strong: str) -> Predictor | None:
        """Return the predictor of a pair; None if the pair has no coefficients."""
        return self._by_pair.get((weak, strong))


_decoder = msgspec.json.Decoder(PairModel)


def decode_model(content: bytes, name: str) -> PairModel:
    """Return the coefficients in a file's content.

    Raises:
        BadModel: The content is invalid; the message contains `name`.
    """
    try:
        model = _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadModel(f"{name}: not a predictor's coefficients: {error}; train it again") from None
    if model.format != FORMAT:
        raise BadModel(f"{name}: has format {model.format}, this version reads {FORMAT}; train it again")
    return model
