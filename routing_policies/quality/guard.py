"""NoveltyGuard: whether a prompt is like those that a prediction was learned from, so that it may be relied on.

The words at the end of the text are looked at, for that is where the question is; what stands ahead of them may be
anything. A figure beyond all that was seen counts too.
"""

from __future__ import annotations

from typing import Final

import msgspec

from routing_policies.quality.features import Features

END_WORDS: Final = 12
"""As many of the last words are looked at."""


class NoveltyGuard(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen in training."""

    words: frozenset[str]
    """Those that at least two prompts had."""
    max_unknown: float
    """Largest share of other words at the end of nearly all prompts."""
    lowest: tuple[float, ...]
    """Of each number; a little below what was seen."""
    highest: tuple[float, ...]

    def is_known(self, features: Features) -> bool:
        """Whether the prompt lies where there was something to learn from."""
        numbers = features.numbers
        if any(map(float.__lt__, numbers, self.lowest)) or any(map(float.__gt__, numbers, self.highest)):
            return False
        return self.unknown_share(features) <= self.max_unknown

    def unknown_share(self, features: Features) -> float:
        """Of the last words, the share that is new; 1 for a text without words."""
        end = features.shapes[-END_WORDS:]
        if not end:
            return 1.0
        words = self.words
        return sum([shape not in words for shape in end]) / len(end)
