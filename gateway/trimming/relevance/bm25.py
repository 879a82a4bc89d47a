"""SegmentIndex: an inverted index of the words of segments, with BM25 scores (Robertson and Zaragoza, 2009)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

_K1: Final = 1.2
_B: Final = 0.5
_PREFIX_WEIGHT: Final = 0.35
"""Weight of a word's beginning against that of the word."""
_SHORT_WORDS: Final = 2
"""Words added to the length of a segment when its information is averaged, so that a lone name counts for little."""


class SegmentIndex:
    """Inverted index of the stems in each segment.

    Sums follow the order of words, so all processes score a text alike.
    """

    __slots__ = ("_norms", "_postings", "words")

    def __init__(self, words: Sequence[Sequence[str]]) -> None:
        self.words = words
        lengths = [sum(not word.endswith("*") for word in segment) for segment in words]
        mean = sum(lengths) / max(1, len(words)) or 1.0
        self._norms = [_K1 * (1 - _B + _B * length / mean) for length in lengths]
        self._postings: dict[str, dict[int, int]] = {}
        for number, segment in enumerate(words):
            for word in segment:
                places = self._postings.setdefault(word, {})
                places[number] = places.get(number, 0) + 1

    def rarity(self, word: str) -> float:
        """Return the inverse document frequency of a word."""
        count = len(self._postings.get(word, ()))
        return math.log(1 + (len(self.words) - count + 0.5) / (count + 0.5))

    def num_segments_with(self, word: str) -> int:
        """Return the number of segments that have the word."""
        return len(self._postings.get(word, ()))

    def segments_with(self, word: str) -> Sequence[int]:
        """Return the numbers of the segments that have the word, in order."""
        return [*self._postings.get(word, ())]

    def scores(self, wanted: Mapping[str, float]) -> list[float]:
        """Return the score of every segment for words with these weights."""
        scores = [0.0] * len(self.words)
        for word, weight in wanted.items():
            places = self._postings.get(word)
            if not places:
                continue
            weight *= self.rarity(word) * (_K1 + 1) * (_PREFIX_WEIGHT if word.endswith("*") else 1.0)
            for number, times in places.items():
                scores[number] += weight * times / (times + self._norms[number])
        return scores

    def best_score(self, wanted: Mapping[str, float]) -> float:
        """Return the score of a segment of usual length that has each of these words once, as far as any has it."""
        known = [(word, weight) for word, weight in wanted.items() if word in self._postings]
        weights = [
            weight * self.rarity(word) * (_PREFIX_WEIGHT if word.endswith("*") else 1.0) for word, weight in known
        ]
        return sum(weights)

    def information(self) -> list[float]:
        """Return how much each segment states that others do not, from 0 to 1: the mean rarity of its words."""
        most = math.log(1 + (len(self.words) - 0.5) / 1.5) or 1.0
        rarities = {word: self.rarity(word) / most for word in self._postings if not word.endswith("*")}
        found = []
        for segment in self.words:
            own = [rarities[word] for word in segment if word in rarities]
            found.append(sum(own) / (len(own) + _SHORT_WORDS))
        return found
