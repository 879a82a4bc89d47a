"""Takes the highest total."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Best:
    """Of equal totals the first in the route's order, so that the same state gives the same choice."""

    def pick(self, totals: Mapping[str, float], rng: random.Random) -> str:
        """The key with the highest total; draws nothing from `rng`."""
        return max(totals, key=totals.__getitem__)
