"""TtftForecast: when a request's first token was expected, what that was worked out from and what came with it."""

from __future__ import annotations

from typing import Final

import msgspec

Features = tuple[float, ...]

_ALIKE: Final = 0.125
"""The forecast is about the same for a prompt and a queue that differ by no larger share."""


class TtftForecast(msgspec.Struct, frozen=True, gc=False):
    """Made for one deployment at one instant."""

    at: float
    lane: str
    uncached_tokens: int
    num_pending: int
    """Requests that had no first token then."""
    seconds: float
    """From sending to the first token."""
    by_books: Features
    """What our own books said."""
    by_report: Features | None
    """What the engine's report said, if there was a fresh one that says enough."""
    tpot_s: float
    """A token, beside those that run and this one."""
    latest_ratio: float
    """The most of any lane: how many times its forecast whoever is next there waits already."""

    def is_like(self, uncached_tokens: int, num_pending: int) -> bool:
        """Whether it would be about the same for such a request of the lane, behind so many others."""
        return (
            abs(uncached_tokens - self.uncached_tokens) <= _ALIKE * self.uncached_tokens
            and abs(num_pending - self.num_pending) <= 1.0 + _ALIKE * self.num_pending
        )
