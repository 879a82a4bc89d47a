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
    rows: float
    """Answers that were being generated then."""
    ahead: float
    """Prompt tokens of the lane that were sent and not computed yet."""
    others: float
    """The same of all other lanes."""
    beyond: float
    """Requests beyond the most rows that were ever seen."""
    step_left_s: float
    """Of the engine's step under way."""
    by_report: Features | None
    """What the engine's report said, if there was a fresh one that says enough."""
    tpot_s: float
    """A token, beside those that run and this one."""
    caution: float
    """By what factor routing should distrust `seconds`, at least 1: a deployment that was, or is, far slower than
    forecast is avoided before the forecast has followed. Ordinary error does not count."""

    @property
    def by_books(self) -> Features:
        """What our own books said, as the model of the time to the first token learns from it."""
        uncached, rows = float(self.uncached_tokens), self.rows
        work = self.uncached_tokens + self.ahead
        return (
            1.0,
            rows,
            uncached,
            self.ahead,
            self.others,
            work * rows,
            work if rows or self.num_pending else 0.0,
            1.0 if self.others else 0.0,
            self.beyond,
            self.step_left_s,
        )

    def is_like(self, uncached_tokens: int, num_pending: int) -> bool:
        """Whether it would be about the same for such a request of the lane, behind so many others."""
        return (
            abs(uncached_tokens - self.uncached_tokens) <= _ALIKE * self.uncached_tokens
            and abs(num_pending - self.num_pending) <= 1.0 + _ALIKE * self.num_pending
        )
