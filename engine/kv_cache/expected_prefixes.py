"""How much of a waiting prompt the prefix cache will hold by its turn: forecasts count what will be computed."""

from __future__ import annotations

from engine.kv_cache.block_manager import BlockManager
from engine.kv_cache.pending_prefixes import PendingPrefixes
from engine.step.sequence import Sequence


class ExpectedPrefixes:
    """What is cached now, what running sequences compute, and what those queued earlier will.

    An estimate of the moment in which a sequence is queued: blocks may be evicted before its turn, and when a sequence
    is aborted in the queue, those behind it still count on its prefix until one of them starts.
    """

    def __init__(self, blocks: BlockManager, running: PendingPrefixes) -> None:
        self._blocks = blocks
        self._running = running
        self._queued = PendingPrefixes()

    def __len__(self) -> int:
        return len(self._queued)

    def enter(self, seq: Sequence) -> None:
        """A sequence is being queued: estimate its hits, and let those behind it count on the rest of its prompt."""
        num_coming = self._blocks.num_coming_blocks(seq, self._running, self._queued)
        seq.num_expected_cached_tokens = self._blocks.num_spared_tokens(seq, num_coming)
        own = range(num_coming, self._blocks.num_shareable_blocks(seq))
        self._queued.claim(seq.seq_id, [self._blocks.digest(seq, index) for index in own])

    def leave(self, seq: Sequence) -> None:
        """A sequence waits no more."""
        self._queued.release(seq.seq_id)
