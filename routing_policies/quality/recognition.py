"""KindRecognizer: names the kind of work of a prompt that is typical of a kind in the training."""

from __future__ import annotations

from collections.abc import Set
from math import exp
from operator import add, mul

import msgspec

from routing_policies.quality.features import Features


class KindRecognizer(msgspec.Struct, frozen=True, kw_only=True):
    """Softmax regression over numbers and words, with a least share and a limit of unknown words for each kind."""

    kinds: tuple[str, ...]
    biases: tuple[float, ...]
    """One for each kind, as are the weights and limits below."""
    numbers: tuple[tuple[float, ...], ...]
    """Weights of each number, by kind: [kinds, numbers]."""
    words: dict[str, tuple[float, ...]]
    """Weights of each word alone, for all kinds."""
    least_shares: tuple[float, ...]
    """Probability that a typical prompt of the kind has at least."""
    most_unknown: tuple[float, ...]
    """Share of unknown words that a typical prompt of the kind has at most."""
    shifts: tuple[float, ...]
    """Log odds that a typical prompt of the kind has above those of the general head."""

    def shift(self, features: Features, known_words: Set[str]) -> float:
        """Return the shift of the prompt's kind; 0 for a prompt that is typical of none."""
        best = self.recognized(features, known_words)
        return 0.0 if best is None else self.shifts[best]

    def recognized(self, features: Features, known_words: Set[str]) -> int | None:
        """Return the place of the prompt's kind among `kinds`; None for a prompt that is typical of none."""
        shapes = set(features.shapes)
        scores = self._scores(features.numbers, shapes)
        best = max(range(len(scores)), key=scores.__getitem__)
        share = 1.0 / sum([exp(score - scores[best]) for score in scores])
        num_unknown = sum([shape not in known_words for shape in shapes])
        is_typical = share >= self.least_shares[best] and num_unknown <= self.most_unknown[best] * len(shapes)
        return best if is_typical else None

    def _scores(self, numbers: list[float], shapes: set[str]) -> list[float]:
        scores = [
            bias + sum(map(mul, weights, numbers)) for bias, weights in zip(self.biases, self.numbers, strict=True)
        ]
        words = self.words
        for shape in shapes:
            weights = words.get(shape)
            if weights is not None:
                scores = list(map(add, scores, weights))
        return scores
