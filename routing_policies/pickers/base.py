"""The shape of a picker."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Protocol


class Picker(Protocol):
    """Chooses; keeps no state, and takes chance as an argument."""

    def pick(self, totals: Mapping[str, float], rng: random.Random) -> str:
        """One of the keys; `totals` is never empty and is in the route's order."""
        ...
