"""Pulse: the instant at which an upstream last sent part of a body."""

from __future__ import annotations

import math


class Pulse:
    """Shared beat of all responses of one server, which computes one token of each in a step."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = -math.inf
        """Monotonic instant of the last piece of any body; set by connections, several times a millisecond."""
