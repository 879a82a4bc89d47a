"""Hashes in place of words: what is kept of a prompt, or learned from what was kept, cannot be read; equal words stay
equal, so that a model of hashes predicts as one of words does. Who guesses a word can still see whether it was there.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from routing_policies.quality.features import Features
from routing_policies.quality.head import Head
from routing_policies.quality.model import PairModel

HASH_BYTES: Final = 5
"""Two of ten thousand words are the same hash once in twenty thousand vocabularies."""
_MAX_KNOWN: Final = 50_000


class WordHasher:
    """Remembers the hashes of words it has met; bounded."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def word(self, word: str) -> str:
        """One word's hash, in hexadecimal digits."""
        known = self._known.get(word)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            digest = blake2b(word.encode(errors="surrogatepass"), digest_size=HASH_BYTES, person=b"penstock-word")
            known = self._known[word] = digest.hexdigest()
        return known

    def features(self, features: Features) -> Features:
        """The same with hashes for words."""
        word = self.word
        return features._replace(words=set(map(word, features.words)), shapes=list(map(word, features.shapes)))

    def model(self, model: PairModel) -> PairModel:
        """The same model, for features with hashes; one that is that already stays as it is."""
        if model.hashes_words:
            return model
        guard = msgspec.structs.replace(model.guard, words=frozenset(map(self.word, model.guard.words)))
        heads = {name: self._head(getattr(model, name)) for name in ("text", "embedded", "told", "away")}
        return msgspec.structs.replace(model, hashes_words=True, guard=guard, **heads)

    def _head(self, head: Head | None) -> Head | None:
        return (
            None
            if head is None
            else msgspec.structs.replace(head, words={self.word(word): value for word, value in head.words.items()})
        )
