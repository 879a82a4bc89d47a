"""SimilarityScale: cosines of any encoder on the scale of the one that the match model was fitted to.

Encoders differ in how near unrelated texts lie: 0.05 with one, 0.75 with another. A few questions in two wordings
each show both ends of an encoder's scale. A line maps them to the ends of the fitted encoder's scale.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

FITTED_UNRELATED: Final = 0.103
FITTED_EQUAL: Final = 0.910
"""Mean cosines of `SENTENCES` with all-MiniLM-L6-v2: of unrelated ones, and of two wordings."""
MARGIN: Final = 0.02
"""Cosine by which another encoder's similarities count for less: nothing was fitted to them."""
_LEAST_SPAN: Final = 0.05
"""Least distance of both ends; below it the encoder's vectors say nothing about these questions."""

SENTENCES: Final = (
    ("How do I reset my password?", "What is the way to reset my password?"),
    ("What is the capital of Portugal?", "Which city is the capital of Portugal?"),
    ("How can I lose weight quickly?", "What is a quick way to lose weight?"),
    ("Why is the sky blue?", "What makes the sky look blue?"),
    ("How long does it take to boil an egg?", "How much time does boiling an egg take?"),
    ("Who wrote the play Hamlet?", "Who is the author of Hamlet?"),
    ("What are the symptoms of the flu?", "Which symptoms does influenza have?"),
    ("How do I learn to play the guitar?", "What is the best way to learn guitar?"),
    ("Can dogs eat chocolate?", "Is it safe for dogs to eat chocolate?"),
    ("What is the difference between a virus and a bacterium?", "How do viruses differ from bacteria?"),
    ("How do I cancel my subscription?", "What do I need to do to cancel a subscription?"),
    ("What is the boiling point of water?", "At which temperature does water boil?"),
)
"""Two wordings of each question; questions of different rows are unrelated."""


class SimilarityScale(msgspec.Struct, frozen=True, gc=False):
    """A line over cosines."""

    slope: float = 1.0
    shift: float = 0.0

    def of(self, cosine: float) -> float:
        """Return the similarity that a cosine stands for, at most 1."""
        return min(1.0, self.slope * cosine + self.shift)


def ends_of(vectors: NDArray[np.float32]) -> tuple[float, float]:
    """Return the mean cosines of unrelated questions and of two wordings, from the vectors of all `SENTENCES` in order.

    Args:
        vectors: Shape `[2 x rows, dimensions]`, each row of length 1.
    """
    cosines, rows = vectors[::2] @ vectors[1::2].T, len(SENTENCES)
    equal = float(np.trace(cosines)) / rows
    return float(cosines.sum() - np.trace(cosines)) / (rows * (rows - 1)), equal


def scale_of(vectors: NDArray[np.float32]) -> SimilarityScale | None:
    """Return the scale of an encoder that the match model was not fitted to; None when it tells nothing apart."""
    unrelated, equal = ends_of(vectors)
    if not equal - unrelated >= _LEAST_SPAN:
        return None
    slope = (FITTED_EQUAL - FITTED_UNRELATED) / (equal - unrelated)
    return SimilarityScale(slope, FITTED_UNRELATED - slope * unrelated - MARGIN)
