"""NoveltyGuard: separates prompts like those of the training, whose predictions are reliable, from others.

It checks the words at the end of the text, where the question is, and numbers beyond the range of the training.
"""

from __future__ import annotations

from typing import Final

import msgspec

from routing_policies.quality.features import Features

END_WORDS: Final = 12
"""Number of words at the end of a text that the guard checks."""


class NoveltyGuard(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the training data."""

    words: frozenset[str]
    """Words that occurred in at least two training prompts."""
    max_unknown: float
    """Largest share of unknown words at the end of nearly all training prompts."""
    lowest: tuple[float, ...]
    """Lower bound of each number, a little below its minimum in the training."""
    highest: tuple[float, ...]

    def is_known(self, features: Features) -> bool:
        """Return whether the prompt lies within the range of the training."""
        numbers = features.numbers
        if any(map(float.__lt__, numbers, self.lowest)) or any(map(float.__gt__, numbers, self.highest)):
            return False
        return self.unknown_share(features) <= self.max_unknown

    def unknown_share(self, features: Features) -> float:
        """Return the share of unknown words at the end of the text; 1 for a text without words."""
        end = features.shapes[-END_WORDS:]
        if not end:
            return 1.0
        words = self.words
        return sum([shape not in words for shape in end]) / len(end)
