"""Sequences that wait for a row, in the order they will be served."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import attrgetter

from engine.core.sequence import Sequence

_ORDER = attrgetter("order")


class WaitingQueue:
    """Sorted by (priority, arrival); a preempted sequence comes back to the place its arrival gives it."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []
        self.num_tokens = 0
        """Known tokens of all waiting sequences."""

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def head(self, count: int) -> list[Sequence]:
        """Copy of the first `count` sequences, so that they may be removed while it is walked."""
        return self._sequences[:count]

    def push(self, seq: Sequence) -> None:
        """Insert in order."""
        insort(self._sequences, seq, key=_ORDER)
        self.num_tokens += seq.num_tokens

    def remove(self, seq: Sequence) -> None:
        """Take a waiting sequence out."""
        index = bisect_left(self._sequences, seq.order, key=_ORDER)
        assert self._sequences[index] is seq
        del self._sequences[index]
        self.num_tokens -= seq.num_tokens
