"""BudgetUsage: how much of a route's error budget the recent hits are expected to have used.

A threshold bounds the doubt about one hit, not the number of hits. Where questions lie close together, many hits just
above it break the bound although every probability is right. So the doubts (1 - probability) of hits are added up
over all requests. As their sum nears its share of the bound, the threshold rises.
"""

from __future__ import annotations

from typing import Final

from gateway.util.bounded_dict import Recent

MEMORY: Final = 10_000
"""Time constant of the sums, in requests."""
BEGINNING: Final = 1_000
"""Requests that the sum begins with, so that the first hits are not refused."""
SHARE: Final = 0.75
"""Share of the bound that may be used; the rest is for probabilities that are too high."""
RAISED_FROM: Final = 0.9
RAISED_TO: Final = 1.15
"""Used parts of that share between which the threshold rises, until nothing is served."""
MAX_PAIRS: Final = 10_000

_FADE: Final = 1.0 - 1.0 / MEMORY


class BudgetUsage:
    """Expected errors of recent hits. Bounded; belongs to one event loop."""

    __slots__ = ("_doubt", "_given", "_requests")

    def __init__(self) -> None:
        self._doubt = 0.0
        self._requests = float(BEGINNING)
        self._given: Recent[tuple[bytes, bytes], None] = Recent(MAX_PAIRS)
        """Pairs that were served: the same pair once more is no new risk, and audited soon."""

    def note_request(self) -> None:
        """Count a request."""
        self._doubt *= _FADE
        self._requests = self._requests * _FADE + 1.0

    def note_served(self, prompt: bytes, cached: bytes, match_probability: float) -> None:
        """Count the hit of question `prompt` on entry `cached`."""
        if not self.is_given(prompt, cached):
            self._doubt += 1.0 - match_probability
            self._given[prompt, cached] = None

    def is_given(self, prompt: bytes, cached: bytes) -> bool:
        """Return whether this pair was served before."""
        return (prompt, cached) in self._given

    def raised(self, threshold: float, max_error_ratio: float) -> float:
        """Return the threshold for pairs that were not served before."""
        if threshold >= 1.0:
            return threshold
        used = self._doubt / (self._requests * SHARE * max_error_ratio)
        step = min(1.0, max(0.0, (used - RAISED_FROM) / (RAISED_TO - RAISED_FROM)))
        return threshold + (1.0 - threshold) * step
