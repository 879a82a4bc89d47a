"""Measuring several sides in turn, so that a busy machine troubles all of them alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from statistics import median

from loadtests.clients.http_client import clock

Side = Callable[[], Awaitable[float]]


class Repeats:
    """In each round every side is measured once, forwards and backwards in turn; ratios are taken within a round."""

    def __init__(self, sides: Mapping[str, Side]) -> None:
        self._sides = sides
        self.found: dict[str, list[float]] = {name: [] for name in sides}

    @property
    def num_repeats(self) -> int:
        """Complete ones."""
        return min(len(values) for values in self.found.values())

    async def run(self, seconds: float, *, at_least: int = 3) -> Repeats:
        """Repeats until the time is over; returns itself."""
        end_at = clock() + seconds
        while self.num_repeats < at_least or clock() < end_at:
            await self.run_once()
        return self

    async def run_once(self) -> None:
        """One round."""
        names = list(self._sides)
        for name in names if self.num_repeats % 2 == 0 else reversed(names):
            self.found[name].append(await self._sides[name]())

    def median(self, name: str) -> float:
        """Of one side."""
        return median(self.found[name])

    def ratio(self, name: str, other: str) -> float:
        """Median over the repeats of `name` / `other`."""
        return median(one / two for one, two in zip(self.found[name], self.found[other], strict=True))

    def lines(self) -> list[str]:
        """Every measurement, for people."""
        return [f"{name:<22} " + ", ".join(f"{value:.4g}" for value in values) for name, values in self.found.items()]
