"""TtftForecast: when a request's first token was expected, and what that was worked out from."""

from __future__ import annotations

from typing import Final

Features = tuple[float, ...]

_ALIKE: Final = 0.125
"""The forecast is about the same for a prompt and a queue that differ by no larger share."""


class TtftForecast:
    """Made for one deployment at one instant; never changed."""

    __slots__ = ("at", "by_books", "by_report", "lane", "num_pending", "seconds", "uncached_tokens")

    def __init__(
        self,
        at: float,
        lane: str,
        uncached_tokens: int,
        num_pending: int,
        seconds: float,
        by_books: Features,
        by_report: Features | None,
    ) -> None:
        self.at = at
        self.lane = lane
        self.uncached_tokens = uncached_tokens
        self.num_pending = num_pending
        """Requests that had no first token then."""
        self.seconds = seconds
        """From sending to the first token."""
        self.by_books = by_books
        """What our own books said."""
        self.by_report = by_report
        """What the engine's report said, if there was a fresh one that says enough."""

    def is_like(self, uncached_tokens: int, num_pending: int) -> bool:
        """Whether it would be about the same for such a request of the lane, behind so many others."""
        return (
            abs(uncached_tokens - self.uncached_tokens) <= _ALIKE * self.uncached_tokens
            and abs(num_pending - self.num_pending) <= 1.0 + _ALIKE * self.num_pending
        )
