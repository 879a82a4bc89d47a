"""Sequences that wait: one queue for each lane, each in the order in which it will be served."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter

from engine.protocol import Lane
from engine.scheduler.lanes import LANES
from engine.step.sequence import Sequence

_ORDER = attrgetter("order")


class WaitingQueue:
    """Sorted by (priority, arrival); a preempted sequence comes back to the place its arrival gives it."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []
        self.num_tokens = 0
        """Known tokens of all waiting sequences."""
        self.num_uncached_tokens = 0
        """Prompt tokens without those that the prefix cache is expected to hold."""
        self.max_output_tokens = 0
        """Tokens that all of them may still generate."""

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
        self.num_uncached_tokens += seq.num_expected_uncached_tokens
        self.max_output_tokens += seq.max_total_tokens - seq.num_tokens

    def remove(self, seq: Sequence) -> None:
        """Take a waiting sequence out."""
        index = bisect_left(self._sequences, seq.order, key=_ORDER)
        assert self._sequences[index] is seq
        del self._sequences[index]
        self.num_tokens -= seq.num_tokens
        self.num_uncached_tokens -= seq.num_expected_uncached_tokens
        self.max_output_tokens -= seq.max_total_tokens - seq.num_tokens


class WaitingLanes:
    """The waiting queues of all lanes."""

    def __init__(self) -> None:
        self._queues: dict[Lane, WaitingQueue] = {lane: WaitingQueue() for lane in LANES}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[Sequence]:
        return chain.from_iterable(self._queues.values())

    @property
    def num_tokens(self) -> int:
        """Known tokens of all waiting sequences."""
        return sum(queue.num_tokens for queue in self._queues.values())

    def of(self, lane: Lane) -> WaitingQueue:
        """Return the queue of one lane, for reading only."""
        return self._queues[lane]

    def push(self, seq: Sequence) -> None:
        """Insert into the sequence's lane."""
        self._queues[seq.lane].push(seq)

    def remove(self, seq: Sequence) -> None:
        """Take a waiting sequence out."""
        self._queues[seq.lane].remove(seq)

    def check_integrity(self) -> None:
        """Raise AssertionError unless every queue is in order and counts its tokens right."""
        for lane, queue in self._queues.items():
            assert all(seq.lane == lane for seq in queue), f"a sequence in the wrong lane: {lane}"
            assert list(queue) == sorted(queue, key=_ORDER), f"lane {lane} is out of order"
            assert queue.num_tokens == sum(seq.num_tokens for seq in queue), f"lane {lane}: tokens are off"
            num_uncached = sum(seq.num_expected_uncached_tokens for seq in queue)
            assert queue.num_uncached_tokens == num_uncached, f"lane {lane}: uncached tokens are off"
            max_output = sum(seq.max_total_tokens - seq.num_tokens for seq in queue)
            assert queue.max_output_tokens == max_output, f"lane {lane}: output tokens are off"
