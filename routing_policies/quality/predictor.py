"""Predictor: one pair's model at work, with its memory of how prompts began."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from routing_policies.quality.features import Features, features_of
from routing_policies.quality.hashing import WordHasher
from routing_policies.quality.model import FORMAT, PairModel, Prediction
from routing_policies.quality.preamble import PreambleMemory
from routing_policies.quality.prompt import Prompt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class BadModel(ValueError):
    """A file of coefficients is not what it should be; the message says why."""


class Judged(msgspec.Struct, frozen=True, gc=False):
    """A prediction, and what it was made from."""

    prediction: Prediction
    features: Features
    kind: str = ""
    """Kind of work, as the route told it."""


class Predictor:
    """Asks the model about a prompt without its preamble."""

    __slots__ = ("_hasher", "_memory", "base", "model")

    def __init__(self, model: PairModel) -> None:
        """Start with a model; it stays the `base` that what is learned in place is held against."""
        self.model = self.base = model
        self._hasher = WordHasher()
        self._memory = PreambleMemory(model.openings)

    @property
    def pair(self) -> tuple[str, str]:
        """Weak and strong, by model name."""
        return self.model.weak, self.model.strong

    @property
    def encoder(self) -> str:
        """Id of the encoder whose embedding of a prompt it can use; empty for features alone."""
        return self.model.encoder if self.model.embedded is not None else ""

    def adopt(self, model: PairModel) -> None:
        """Predict with another model of the pair from here on."""
        if model is not self.model:
            self.model = model
            self._memory = PreambleMemory(model.openings)

    def judge(self, prompt: Prompt, vector: NDArray[np.float32] | None = None) -> Judged:
        """Predict; an embedding is left aside where the text had a preamble, of which it knows nothing."""
        text = self._memory.strip(prompt.text)
        if text is not prompt.text:
            num_chars = prompt.num_chars - len(prompt.text) + len(text)
            prompt, vector = msgspec.structs.replace(prompt, text=text, num_chars=num_chars), None
        features = features_of(prompt)
        asked = self._hasher.features(features) if self.model.hashes_words else features
        return Judged(self.model.predict(asked, vector, kind=prompt.kind), features, prompt.kind)


class Predictors:
    """All predictors by pair of model names; of two for the same pair the later one counts."""

    __slots__ = ("_by_pair",)

    def __init__(self, models: Iterable[PairModel] = ()) -> None:
        self._by_pair = {(model.weak, model.strong): Predictor(model) for model in models}

    def __len__(self) -> int:
        return len(self._by_pair)

    def __iter__(self) -> Iterator[Predictor]:
        return iter(self._by_pair.values())

    def find(self, weak: str, strong: str) -> Predictor | None:
        """Return the predictor of a pair, None where nothing was learned of it."""
        return self._by_pair.get((weak, strong))


_decoder = msgspec.json.Decoder(PairModel)


def decode_model(content: bytes, name: str) -> PairModel:
    """Return a file's coefficients; raises BadModel, which names the file."""
    try:
        model = _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadModel(f"{name}: not a predictor's coefficients: {error}; train it again") from None
    if model.format != FORMAT:
        raise BadModel(f"{name}: has format {model.format}, this version reads {FORMAT}; train it again")
    return model
