"""What a capacity is, the highest rate at which nearly all are answered in time, and how it is searched for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

GOOD_SHARE = 0.99
"""Of the requests at a rate that is held."""
_UP = 1.33
_REPEATS = 5
_MOST_UP = 24
"""Steps from half the start value; a thousand times the start value is no capacity."""


async def highest_held(is_held: Callable[[float], Awaitable[bool]], start_per_s: float) -> float:
    """The highest rate found that is held: up in thirds from half the start value, then bisection.

    Raises ValueError when every rate is held.
    """
    low, high = 0.0, start_per_s / 2
    for _ in range(_MOST_UP):
        if not await is_held(high):
            break
        low, high = high, high * _UP
    else:
        raise ValueError(f"every rate up to {low:.3g} per s is held; the start value was {start_per_s:.3g}")
    for _ in range(_REPEATS):
        middle = (low + high) / 2 if low else high / 2
        if await is_held(middle):
            low = middle
        else:
            high = middle
    return low or high
