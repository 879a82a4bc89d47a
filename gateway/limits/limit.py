"""Limit: how many requests a deployment may have at once. It computes; the Limiter enforces."""

from __future__ import annotations

from typing import Protocol


class Limit(Protocol):
    """A number; it never blocks anybody itself. Whoever moves it tells the Limiter with `set_limit`."""

    @property
    def value(self) -> int:
        """Requests allowed at once now, at least 1."""
        ...


class StaticLimit:
    """A number the operator wrote down; raises ValueError below 1."""

    __slots__ = ("_value",)

    def __init__(self, value: int) -> None:
        if value < 1:
            raise ValueError(f"max_in_flight: expected a positive integer, got {value}")
        self._value = value

    @property
    def value(self) -> int:
        """Always the same."""
        return self._value
