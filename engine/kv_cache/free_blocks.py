"""Free list of blocks, least recently useful first, without access to their content."""

from __future__ import annotations

from collections import OrderedDict

_RUN_ATTEMPTS = 4


class FreeBlocks:
    """O(1) LRU list of unused block ids that can also allocate ascending runs.

    Blank blocks (without reusable content) come first, cached ones after them in the order of their release. Runs start
    at a cursor that cycles through the pool and leaves room for the expected growth. A sequence thus tends to stay
    contiguous, which lets attention on a CPU read a view instead of a copy.
    """

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._lru: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        # Tick at which each block was freed with reusable content; 0: it is blank.
        self._freed_tick = [0] * num_blocks
        self._tick = 0
        self._cursor = 0
        self.num_cached = 0

    def __len__(self) -> int:
        return len(self._lru)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._lru

    def put(self, block_id: int, *, is_cached: bool) -> None:
        """Add a block: a cached one is evicted after all others, a blank one is taken first."""
        self._lru[block_id] = None
        if is_cached:
            self._tick += 1
            self._freed_tick[block_id] = self._tick
            self.num_cached += 1
        else:
            self._freed_tick[block_id] = 0
            self._lru.move_to_end(block_id, last=False)

    def remove(self, block_id: int) -> None:
        """Take a certain block. Raises KeyError if it is in use."""
        del self._lru[block_id]
        if self._freed_tick[block_id]:
            self.num_cached -= 1

    def take_run(self, num: int, num_growth: int) -> list[int]:
        """Take `num` blocks, ascending and contiguous where the pool allows. Raises KeyError if fewer are free."""
        start = self._find_run(num + num_growth)
        if start is None:
            start = self._find_run(num)
        if start is None:
            return sorted(self._take_oldest() for _ in range(num))
        run = list(range(start, start + num))
        for block_id in run:
            self.remove(block_id)
        self._cursor = start + num + num_growth
        return run

    def take_after(self, block_id: int) -> int:
        """Take the block after `block_id` if allowed, otherwise the oldest. Raises KeyError if none is free."""
        neighbour = block_id + 1
        if self._may_take(neighbour):
            self.remove(neighbour)
            return neighbour
        return self._take_oldest()

    def _take_oldest(self) -> int:
        block_id, _ = self._lru.popitem(last=False)
        if self._freed_tick[block_id]:
            self.num_cached -= 1
        return block_id

    def _may_take(self, block_id: int) -> bool:
        """Return whether a block may be taken out of LRU order.

        Blank blocks may, and cached ones after as many releases as half the pool has blocks.
        """
        if block_id not in self._lru:
            return False
        freed_tick = self._freed_tick[block_id]
        return freed_tick == 0 or self._tick - freed_tick > self._num_blocks // 2

    def _find_run(self, length: int) -> int | None:
        """Return the first id of a run of blocks that may be taken, near the cursor."""
        start = self._cursor
        for _ in range(_RUN_ATTEMPTS):
            if start + length > self._num_blocks:
                start = 0
            end = start
            while end < min(start + length, self._num_blocks) and self._may_take(end):
                end += 1
            if end - start == length:
                return start
            start = end + 1
        return None
