"""RetryBudget: a bound on retries by the traffic, so retries never become the load."""

from __future__ import annotations

from typing import Final

DEFAULT_RATIO: Final = 0.1
DEFAULT_RESERVE: Final = 10.0


class RetryBudget:
    """Token bucket for retries: every request adds `ratio`, every retry takes 1, and `reserve` is the capacity.

    It starts full. With `begins_empty`, retries never exceed their share of the requests so far.
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
        """True if one retry is available now."""
        return self._purse >= 1

    def spend(self) -> bool:
        """Take one retry; return False when none is available."""
        if self._purse < 1:
            return False
        self._purse -= 1
        return True

    def spend_with(self, other: RetryBudget) -> bool:
        """Take one retry from both budgets; return False and take none when either lacks one."""
        return other.can_spend and self.spend() and other.spend()
