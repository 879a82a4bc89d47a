"""TtftForecast: the forecast of a request's first token, with the features that it was computed from."""

from __future__ import annotations

from typing import Final

import msgspec

Features = tuple[float, ...]

_ALIKE: Final = 0.125
"""Largest relative difference of prompt or queue for which a forecast is reused."""


class TtftForecast(msgspec.Struct, frozen=True, gc=False):
    """Forecast for one deployment at one instant."""

    at: float
    lane: str
    uncached_tokens: int
    num_pending: int
    """Number of requests without a first token at that time."""
    seconds: float
    """TTFT in seconds from sending."""
    rows: float
    """Number of sequences decoding at that time."""
    ahead: float
    """Prompt tokens of the lane that were sent and not computed yet."""
    others: float
    """Prompt tokens of all other lanes that were sent and not computed yet."""
    beyond: float
    """Number of requests beyond the most rows ever seen."""
    step_left_s: float
    """Seconds left of the engine's step under way."""
    by_report: Features | None
    """Features from the engine's load report; None without a fresh and complete one."""
    tpot_s: float
    """Seconds per token beside the running sequences and this one."""
    caution: float
    """Factor, at least 1, by which routing distrusts `seconds`.

    A deployment far slower than its forecast is avoided before the model has adapted. Ordinary error does not count.
    """

    @property
    def by_books(self) -> Features:
        """Features from the gateway's own counts, in the order of the TTFT model."""
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
        """Return whether the forecast also fits a request of this size behind so many pending ones."""
        return (
            abs(uncached_tokens - self.uncached_tokens) <= _ALIKE * self.uncached_tokens
            and abs(num_pending - self.num_pending) <= 1.0 + _ALIKE * self.num_pending
        )
