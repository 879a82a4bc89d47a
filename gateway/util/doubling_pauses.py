"""DoublingPauses: pauses after failures in a row, each twice as long as the one before."""

from __future__ import annotations


class DoublingPauses:
    """Pauses in seconds, from `first_s` up to `longest_s`."""

    __slots__ = ("_first_s", "_longest_s", "_next_s")

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def failed(self) -> float:
        """Return the seconds to wait after a further failure."""
        pause_s, self._next_s = self._next_s, min(2.0 * self._next_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """Begin anew after a success."""
        self._next_s = self._first_s
