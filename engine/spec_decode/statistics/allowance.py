"""Time that may be lost on what may turn out useless: a share of all time, saved up to a limit."""

from __future__ import annotations


class TimeAllowance:
    """Seconds that may still be spent."""

    __slots__ = ("_limit_s", "_most_owed_s", "_ratio", "left_s")

    def __init__(self, ratio: float, limit_s: float, most_owed_s: float | None = None) -> None:
        """`ratio`: what is earned of every second that passes; `limit_s`: most that is saved up, and owed if nothing
        else is said."""
        self._ratio = ratio
        self._limit_s = limit_s
        self._most_owed_s = limit_s if most_owed_s is None else most_owed_s
        self.left_s = 0.0
        """Below 0 when more was spent than there was, within limits: a hiccup of the machine must not be paid off for
        minutes."""

    def earn(self, seconds: float, gained_s: float = 0.0) -> None:
        """So much time passed; what was gained in it is earned as well."""
        self.left_s = min(self._limit_s, self.left_s + self._ratio * seconds + max(0.0, gained_s))

    def spend(self, seconds: float) -> None:
        """So much was spent."""
        self.left_s = max(self.left_s - seconds, -self._most_owed_s)
