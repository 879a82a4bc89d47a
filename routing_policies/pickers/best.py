"""Picker of the highest total."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Best:
    """Picker of the highest total, of equal ones the first in the route's order, so the choice is reproducible."""

    def pick(self, totals: Mapping[str, float], rng: random.Random) -> str:
        """Return the key with the highest total; draws nothing from `rng`."""
        return max(totals, key=totals.__getitem__)
