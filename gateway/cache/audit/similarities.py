"""Similarities: counts of cosines to the nearest question, for hits and misses, in bounded memory."""

from __future__ import annotations

from typing import Final, Literal

Kind = Literal["served", "refused"]

LOWEST: Final = 0.5
NUM_BINS: Final = 25
"""Bins from LOWEST to 1; the first one also takes what is below."""


class Similarities:
    """Lookups by similarity."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Kind, list[int]] = {"served": [0] * NUM_BINS, "refused": [0] * NUM_BINS}

    def note(self, kind: Kind, similarity: float) -> None:
        """Count a lookup by the cosine to its nearest question."""
        place = int((similarity - LOWEST) / (1.0 - LOWEST) * NUM_BINS)
        self._counts[kind][min(NUM_BINS - 1, max(0, place))] += 1

    def shown(self) -> dict[str, list[float] | list[int]]:
        """Return the lower edges of the bins, and the counts of each kind."""
        width = (1.0 - LOWEST) / NUM_BINS
        edges = [round(LOWEST + place * width, 4) for place in range(NUM_BINS)]
        return {"from": edges, "served": list(self._counts["served"]), "refused": list(self._counts["refused"])}
