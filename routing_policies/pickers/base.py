"""Interface of pickers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Protocol


class Picker(Protocol):
    """Stateless choice; randomness is an argument."""

    def pick(self, totals: Mapping[str, float], rng: random.Random) -> str:
        """Return one of the keys of `totals`, which is never empty and in the route's order."""
        ...
