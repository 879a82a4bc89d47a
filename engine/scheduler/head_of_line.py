"""Head-of-line blocking: sequences at the head of a lane that did not fit, and how often others passed them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.protocol import Lane
from engine.scheduler.lanes import LANES
from engine.step.sequence import Sequence


@dataclass(slots=True)
class _Head:
    seq_id: int
    num_frees: int
    """Number of block releases at the last attempt; another attempt needs a newer release."""
    num_passed: int = 0


class HeadOfLineBlocking:
    """Blocked heads of lanes, and which sequences may still pass them.

    A blocked head holds back its own lane and the lanes behind it. Lanes before it may pass it a bounded number of
    times. After that, it holds back every sequence, so that blocks become free for it.
    """

    def __init__(self, max_passed: int) -> None:
        self._max_passed = max_passed
        self._heads: dict[Lane, _Head] = {}

    def note(self, seq: Sequence, num_frees: int) -> None:
        """Record that the first sequence of its lane did not fit."""
        head = self._heads.get(seq.lane)
        if head is None or head.seq_id != seq.seq_id:
            self._heads[seq.lane] = _Head(seq.seq_id, num_frees)
        else:
            head.num_frees = num_frees

    def is_still_blocked(self, seq: Sequence, num_frees: int) -> bool:
        """Return whether this sequence did not fit and no block was released since."""
        head = self._heads.get(seq.lane)
        return head is not None and (head.seq_id, head.num_frees) == (seq.seq_id, num_frees)

    def overdue(self) -> Lane | None:
        """Return the lane whose head was passed so often that nothing else may start before it."""
        return next((lane for lane, head in self._heads.items() if head.num_passed >= self._max_passed), None)

    def forget(self, seq: Sequence) -> None:
        """Drop a sequence that no longer waits."""
        head = self._heads.get(seq.lane)
        if head is not None and head.seq_id == seq.seq_id:
            del self._heads[seq.lane]

    def started(self, seq: Sequence) -> None:
        """Record that a sequence got its blocks, and so passed the heads of the lanes behind its own once more."""
        self.forget(seq)
        for lane in LANES[LANES.index(seq.lane) + 1 :]:
            if lane in self._heads:
                self._heads[lane].num_passed += 1
