"""NoveltyGuard: tells prompts like those of the training, whose prediction may be relied on, from others.

It looks at the words at the end of the text, where the question is, and at figures beyond all that was seen.
"""

from __future__ import annotations

from typing import Final

import msgspec

from routing_policies.quality.features import Features

END_WORDS: Final = 12
"""Number of last words that it looks at."""


class NoveltyGuard(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of what the training has seen."""

    words: frozenset[str]
    """Words that at least two prompts had."""
    max_unknown: float
    """Largest share of other words at the end of nearly all prompts."""
    lowest: tuple[float, ...]
    """A little below the least that was seen of each number."""
    highest: tuple[float, ...]

    def is_known(self, features: Features) -> bool:
        """Return whether the prompt lies where there was something to learn from."""
        numbers = features.numbers
        if any(map(float.__lt__, numbers, self.lowest)) or any(map(float.__gt__, numbers, self.highest)):
            return False
        return self.unknown_share(features) <= self.max_unknown

    def unknown_share(self, features: Features) -> float:
        """Return the share of the last words that is new; 1 for a text without words."""
        end = features.shapes[-END_WORDS:]
        if not end:
            return 1.0
        words = self.words
        return sum([shape not in words for shape in end]) / len(end)
