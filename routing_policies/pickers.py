"""Pickers: each chooses one candidate by the totals."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Picker(Protocol):
    """Stateless choice; randomness is an argument."""

    def pick(self, totals: Mapping[str, float], rng: random.Random) -> str:
        """Return one of the keys of `totals`, which is never empty and in the route's order."""
        ...


@dataclass(frozen=True, slots=True)
class Best:
    """Picker of the highest total, of equal ones the first in the route's order, so the choice is reproducible."""

    def pick(self, totals: Mapping[str, float], rng: random.Random) -> str:
        """Return the key with the highest total; draws nothing from `rng`."""
        return max(totals, key=totals.__getitem__)


@dataclass(frozen=True, slots=True)
class Proportional:
    """Picker of each candidate with the probability of its share of the sum; if every total is 0, all are equal."""

    def pick(self, totals: Mapping[str, float], rng: random.Random) -> str:
        """Return one key; draws exactly one number from `rng`."""
        weights = totals if any(totals.values()) else dict.fromkeys(totals, 1.0)
        point = rng.random() * sum(weights.values())
        for candidate, weight in weights.items():
            point -= weight
            if point < 0.0:
                return candidate
        # Rounding can leave a remainder beyond the last share; it belongs to the last candidate with a share.
        return [candidate for candidate, weight in weights.items() if weight > 0.0][-1]
