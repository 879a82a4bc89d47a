"""Request ids: short, unguessable, made by the gateway and by nobody else."""

from __future__ import annotations

import random


class RequestIds:
    """Makes ids like `req_1f0c…` (96 random bits); `rng` is seeded by the caller, one for each process."""

    __slots__ = ("_getrandbits",)

    def __init__(self, rng: random.Random) -> None:
        self._getrandbits = rng.getrandbits

    def next(self) -> str:
        """A new id, 28 ASCII characters."""
        return f"req_{self._getrandbits(96):024x}"
