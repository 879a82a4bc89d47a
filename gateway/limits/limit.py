"""Limit: the number of requests that a deployment may have at once. It computes; the Limiter enforces."""

from __future__ import annotations

from typing import Protocol


class Limit(Protocol):
    """Number of permits; code that changes it calls the Limiter's `set_limit`."""

    @property
    def value(self) -> int:
        """Number of requests allowed at once, at least 1."""
        ...


class StaticLimit:
    """Constant limit from the policy; raises ValueError below 1."""

    __slots__ = ("_value",)

    def __init__(self, value: int) -> None:
        if value < 1:
            raise ValueError(f"max_in_flight: expected a positive integer, got {value}")
        self._value = value

    @property
    def value(self) -> int:
        """Number of requests allowed at once."""
        return self._value
