"""RoundTrip: how far away a deployment is, by its probes."""

from __future__ import annotations

from collections import deque
from typing import Final

NUM_PROBES: Final = 16
"""Probes of which the quickest counts: whatever else takes a probe longer says nothing about the way."""


class RoundTrip:
    """The round trip to a deployment."""

    __slots__ = ("_probes",)

    def __init__(self) -> None:
        self._probes: deque[float] = deque(maxlen=NUM_PROBES)

    @property
    def seconds(self) -> float | None:
        """Return the round trip; None before the first probe."""
        return min(self._probes, default=None)

    def note(self, seconds: float) -> None:
        """Note the duration of a probe that was answered."""
        self._probes.append(seconds)
