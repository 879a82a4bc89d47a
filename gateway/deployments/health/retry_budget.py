"""RetryBudget: how many second attempts the traffic may afford, so that retries never become the load."""

from __future__ import annotations

from typing import Final

DEFAULT_RATIO: Final = 0.1
DEFAULT_RESERVE: Final = 10.0


class RetryBudget:
    """Every request puts `ratio` into the purse, every retry takes 1 out; `reserve` is what the purse can hold.

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
        """A request came."""
        purse = self._purse + self._ratio
        self._purse = purse if purse < self._reserve else self._reserve

    @property
    def can_spend(self) -> bool:
        """Whether one retry is affordable now."""
        return self._purse >= 1

    def spend(self) -> bool:
        """Whether one retry is affordable; it is paid when True."""
        if self._purse < 1:
            return False
        self._purse -= 1
        return True

    def spend_with(self, other: RetryBudget) -> bool:
        """Whether one retry is affordable by both purses; both have paid when True, neither when False."""
        return other.can_spend and self.spend() and other.spend()
