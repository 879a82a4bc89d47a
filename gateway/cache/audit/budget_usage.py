"""BudgetUsage: how much of a route's promise the answers that were given lately are expected to have used up.

A floor bounds how doubtful one answer may be, not how many are given: where questions lie close together, many answers
just above it break the promise although every chance is right. So the doubts of what is served are added up over all
requests, and as their sum nears its share of the bound only surer answers are given.
"""

from __future__ import annotations

from typing import Final

from gateway.util.bounded_dict import Recent

MEMORY: Final = 10_000
"""Requests over which it is reckoned; older ones fade."""
BEGINNING: Final = 1_000
"""Requests without a wrong answer that it begins with, so that the first ones are not refused."""
SHARE: Final = 0.75
"""Of the bound: what may be spent; the rest is for chances that are too high."""
RAISED_FROM: Final = 0.9
RAISED_TO: Final = 1.15
"""Of that share: from here on the floor rises, and there it ends at serving nothing."""
MAX_PAIRS: Final = 10_000

_FADE: Final = 1.0 - 1.0 / MEMORY


class BudgetUsage:
    """Bounded; belongs to one event loop."""

    __slots__ = ("_doubt", "_given", "_requests")

    def __init__(self) -> None:
        self._doubt = 0.0
        self._requests = float(BEGINNING)
        self._given: Recent[tuple[bytes, bytes], None] = Recent(MAX_PAIRS)
        """Who was given what: once more of the same is no new risk, and audited soon."""

    def note_request(self) -> None:
        """Somebody asked."""
        self._doubt *= _FADE
        self._requests = self._requests * _FADE + 1.0

    def note_served(self, asked: bytes, kept: bytes, chance: float) -> None:
        """The answer of `kept` was given to `asked`, and is right with that chance."""
        if not self.is_given(asked, kept):
            self._doubt += 1.0 - chance
            self._given[asked, kept] = None

    def is_given(self, asked: bytes, kept: bytes) -> bool:
        """Whether the same was given before."""
        return (asked, kept) in self._given

    def raised(self, floor: float, max_error_ratio: float) -> float:
        """The floor for what was not given before."""
        if floor >= 1.0:
            return floor
        used = self._doubt / (self._requests * SHARE * max_error_ratio)
        step = min(1.0, max(0.0, (used - RAISED_FROM) / (RAISED_TO - RAISED_FROM)))
        return floor + (1.0 - floor) * step
