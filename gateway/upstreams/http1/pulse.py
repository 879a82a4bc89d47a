"""Pulse: when an upstream last said something of an answer."""

from __future__ import annotations

import math


class Pulse:
    """All answers of one server beat together: who decodes them makes one token of each in a step."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = -math.inf
        """Monotonic instant of the last piece of any body; set by connections, several times a millisecond."""
