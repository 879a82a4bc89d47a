"""RetryBudget: how many second attempts the traffic may afford, so that retries never become the load."""

from __future__ import annotations

import math
from typing import Final

DEFAULT_RATIO: Final = 0.1
DEFAULT_RESERVE: Final = 10.0


class RetryBudget:
    """Budget of retries: every request adds `ratio`, every retry takes 1, and `reserve` is the most that it holds.

    It begins full, unless `begins_empty`: then retries never exceed their share of the requests so far.
    """

    __slots__ = ("_purse", "_ratio", "_reserve")

    def __init__(
        self, *, ratio: float = DEFAULT_RATIO, reserve: float = DEFAULT_RESERVE, begins_empty: bool = False
    ) -> None:
        if not 0 <= ratio <= 1 or reserve < 1:
            raise ValueError(f"expected a ratio in [0, 1] and a reserve of 1 or more, got {ratio} and {reserve}")
        self._ratio = ratio
        self._reserve = reserve
        self._purse = 0.0 if begins_empty else reserve

    def earn(self) -> None:
        """Add the share of one request."""
        purse = self._purse + self._ratio
        self._purse = purse if purse < self._reserve else self._reserve

    @property
    def can_spend(self) -> bool:
        """Return whether one retry is affordable now."""
        return self._purse >= 1

    def spend(self) -> bool:
        """Return whether one retry is affordable; it is paid when True."""
        if self._purse < 1:
            return False
        self._purse -= 1
        return True

    def spend_with(self, other: RetryBudget) -> bool:
        """Return whether both budgets can afford one retry; both have paid when True, neither when False."""
        return other.can_spend and self.spend() and other.spend()


WINDOW_S: Final = 60.0
LATE_SHARE: Final = 0.95
"""Quantile of recent delays beyond which a response is late."""
MIN_SAMPLES: Final = 20
"""Number of samples below which the tail is unknown."""

_REFRESH_S: Final = 0.25
_FIRST: Final = 0.001
_STEP: Final = math.log(1.1)
_NUM_BINS: Final = 128
"""Number of bins from 1 ms to 200 s, each 10 % wider than the one before, which bounds the error of a quantile."""


class RecentDelays:
    """Histogram of delays over the last one to two windows; its cost does not depend on the number of samples."""

    __slots__ = ("_before", "_known", "_known_at", "_now", "_num_before", "_num_now", "_since")

    def __init__(self) -> None:
        self._now = [0] * _NUM_BINS
        self._before = [0] * _NUM_BINS
        self._num_now = self._num_before = 0
        self._since = 0.0
        self._known: tuple[float | None, float | None] = (None, None)
        self._known_at = -math.inf

    def add(self, now: float, seconds: float) -> None:
        """Add a response that began `seconds` after its request."""
        self._turn(now)
        position = int(math.log(max(seconds, _FIRST) / _FIRST) / _STEP)
        self._now[min(position, _NUM_BINS - 1)] += 1
        self._num_now += 1

    def usual_s(self, now: float) -> float | None:
        """Return the median delay in seconds, up to 10 % too large; None with too few samples."""
        return self._look(now)[0]

    def late_s(self, now: float) -> float | None:
        """Return the seconds after which a response is late, up to 10 % too large; None with too few samples."""
        return self._look(now)[1]

    def _look(self, now: float) -> tuple[float | None, float | None]:
        """Return median and late delay, computed a few times a second at most, because every request reads them."""
        if now - self._known_at >= _REFRESH_S:
            self._turn(now)
            self._known, self._known_at = (self._quantile_s(0.5), self._quantile_s(LATE_SHARE)), now
        return self._known

    def _quantile_s(self, share: float) -> float | None:
        num = self._num_now + self._num_before
        if num < MIN_SAMPLES:
            return None
        left = share * num
        for position in range(_NUM_BINS):
            left -= self._now[position] + self._before[position]
            if left <= 0:
                return _FIRST * math.exp((position + 1) * _STEP)
        return _FIRST * math.exp(_NUM_BINS * _STEP)

    def _turn(self, now: float) -> None:
        """Begin a new window when the current one is over; after two windows without samples, drop both."""
        age_s = now - self._since
        if age_s < WINDOW_S:
            return
        self._since = now
        self._before, self._num_before = ([0] * _NUM_BINS, 0) if age_s > 2 * WINDOW_S else (self._now, self._num_now)
        self._now, self._num_now = [0] * _NUM_BINS, 0
