"""Forecast of prefix cache hits of waiting sequences, including blocks that others will compute first."""

from __future__ import annotations

from engine.kv_cache.block_manager import BlockManager
from engine.kv_cache.pending_prefixes import PendingPrefixes
from engine.step.sequence import Sequence


class ExpectedPrefixes:
    """Expected prefixes: blocks cached now, and those that running and earlier queued sequences will compute.

    The estimate is made when a sequence is queued. Blocks may be evicted before its turn. After an abort in the queue,
    later sequences still count on the aborted prefix until one of them starts.
    """

    def __init__(self, blocks: BlockManager, running: PendingPrefixes) -> None:
        self._blocks = blocks
        self._running = running
        self._queued = PendingPrefixes()

    def __len__(self) -> int:
        return len(self._queued)

    def enter(self, seq: Sequence) -> None:
        """Estimate the hits of a sequence that is queued now, and add the rest of its prompt for later ones."""
        num_coming = self._blocks.num_coming_blocks(seq, self._running, self._queued)
        seq.num_expected_cached_tokens = self._blocks.num_spared_tokens(seq, num_coming)
        own = range(num_coming, self._blocks.num_shareable_blocks(seq))
        self._queued.reserve(seq.seq_id, [self._blocks.digest(seq, index) for index in own])

    def leave(self, seq: Sequence) -> None:
        """Remove a sequence that no longer waits."""
        self._queued.release(seq.seq_id)
