"""Guard: whether a prompt is like those that a prediction was learned from, so that it may be relied on.

The words at the end of the text are looked at, for that is where the question is; what stands ahead of them may be
anything. A figure beyond all that was seen counts too, and so does the place of the embedding where there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from routing_policies.quality.features import Features

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

END_WORDS: Final = 12
"""As many of the last words are looked at."""


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen in training."""

    words: frozenset[str]
    """Those that at least two prompts had."""
    max_unknown: float
    """Largest share of other words at the end of nearly all prompts."""
    lowest: tuple[float, ...]
    """Of each number; a little below what was seen."""
    highest: tuple[float, ...]
    centres: tuple[tuple[float, ...], ...] = ()
    """Unit vectors around which the training's embeddings lie."""
    min_similarity: float = -1.0
    """Of nearly all prompts to the centre nearest to them."""

    def is_known(self, features: Features, vector: NDArray[np.float32] | None = None) -> bool:
        """Whether the prompt lies where there was something to learn from."""
        numbers = features.numbers
        if any(map(float.__lt__, numbers, self.lowest)) or any(map(float.__gt__, numbers, self.highest)):
            return False
        unknown = self.unknown_share(features)
        if unknown > self.max_unknown:
            return False
        if vector is None or not self.centres or unknown <= self.max_unknown / 2:
            return True
        return self.similarity(vector) >= self.min_similarity

    def unknown_share(self, features: Features) -> float:
        """Of the last words, the share that is new; 1 for a text without words."""
        end = features.shapes[-END_WORDS:]
        if not end:
            return 1.0
        words = self.words
        return sum([shape not in words for shape in end]) / len(end)

    def similarity(self, vector: NDArray[np.float32]) -> float:
        """Cosine to the nearest centre."""
        import numpy as np

        return float((np.array(self.centres, dtype=np.float32) @ vector).max())
