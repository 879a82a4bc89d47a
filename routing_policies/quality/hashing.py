"""Hashes in place of words, so that stored data does not reveal a prompt.

Equal words have equal hashes, so a model on hashes predicts like one on words. A reader can still test a word
for its presence.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from routing_policies.quality.features import Features
from routing_policies.quality.head import Head
from routing_policies.quality.model import PairModel

HASH_BYTES: Final = 5
"""Number of bytes of a hash: one in twenty thousand vocabularies of ten thousand words has a collision."""


def hash_of_word(word: str) -> str:
    """Return the hash of a word in hexadecimal digits."""
    digest = blake2b(word.encode(errors="surrogatepass"), digest_size=HASH_BYTES, person=b"penstock-word")
    return digest.hexdigest()


def hashed_features(features: Features) -> Features:
    """Return the features with each word replaced by its hash."""
    return features._replace(
        words=set(map(hash_of_word, features.words)), shapes=list(map(hash_of_word, features.shapes))
    )


def hashed_model(model: PairModel) -> PairModel:
    """Return the model for hashed features; a model that already is one is returned unchanged."""
    if model.hashes_words:
        return model
    guard = replace(model.guard, words=frozenset(map(hash_of_word, model.guard.words)))
    embedded = None if model.embedded is None else _hashed_head(model.embedded)
    recognizer = model.recognizer
    if recognizer is not None:
        words = {hash_of_word(word): weights for word, weights in recognizer.words.items()}
        recognizer = replace(recognizer, words=words)
    heads = {"text": _hashed_head(model.text), "embedded": embedded}
    return replace(model, hashes_words=True, guard=guard, recognizer=recognizer, **heads)


def _hashed_head(head: Head) -> Head:
    return replace(head, words={hash_of_word(word): weight for word, weight in head.words.items()})
