"""Block manager of the paged KV pool: owners of blocks, and unused blocks that hold a reusable prefix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable

from engine.kv_cache.free_blocks import FreeBlocks
from engine.kv_cache.prefix_index import PrefixIndex
from engine.kv_cache.state_slots import StateSlots
from engine.kv_cache.window_blocks import WindowBlocks
from engine.step.scheduler_output import ScheduledChunk
from engine.step.sequence import Sequence


class BlockManager:
    """Manager that allocates blocks to sequences, shares full ones between equal prefixes, and frees them.

    A block is either referenced by the tables of one or more sequences or in the free list, never both. A free block
    may still be in the prefix index; it leaves the index when it is allocated for new content.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_prefix_cache: bool = True,
        windows: WindowBlocks | None = None,
    ) -> None:
        """Create a manager of free blocks.

        Args:
            num_blocks: Blocks of the pool.
            block_size: Tokens of a block.
            enable_prefix_cache: True to share blocks between equal prefixes.
            windows: Blocks of layers with a sliding window; None: they keep as many as other layers.
        """
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.enable_prefix_cache = enable_prefix_cache
        self.num_frees = 0
        """Number of times that a sequence gave its blocks back."""
        self._ref_counts = [0] * num_blocks
        self._num_references = 0
        self._free = FreeBlocks(num_blocks)
        self._index = PrefixIndex(num_blocks, block_size)
        self.states: StateSlots | None = None
        """Slots of recurrent states; None: the model has none."""
        self._windows = windows

    @property
    def num_free(self) -> int:
        """Number of unused blocks, cached ones included."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Number of unused blocks that still hold a reusable prefix."""
        return self._free.num_cached

    def blocks_for(self, num_tokens: int) -> int:
        """Return the number of blocks that `num_tokens` tokens fill."""
        return -(-num_tokens // self.block_size)

    def find_prefix(self, seq: Sequence) -> list[int]:
        """Return the cached blocks of the sequence's leading tokens; they may cover all its tokens."""
        found = self._cached_blocks(seq)
        if self.states is not None:
            # A recurrent layer begins where its state is saved.
            del found[self.states.num_reusable(found, seq.num_tokens) :]
        return found

    def _cached_blocks(self, seq: Sequence) -> list[int]:
        found: list[int] = []
        for index in range(self.num_shareable_blocks(seq)):
            block_id = self._index.find(seq, index)
            if block_id is None:
                break
            found.append(block_id)
        return found if self._windows is None else found[: self._windows.usable_prefix(found)]

    def num_coming_blocks(self, seq: Sequence, *coming: Container[bytes]) -> int:
        """Return the number of leading blocks that are cached or that `coming` lists as to be computed."""
        for index in range(self.num_shareable_blocks(seq)):
            digest = self._index.digest(seq, index)
            if self._index.find(seq, index) is None and not any(digest in digests for digests in coming):
                return index
        return self.num_shareable_blocks(seq)

    def num_shareable_blocks(self, seq: Sequence) -> int:
        """Return the number of leading full blocks that a prefix hit could cover."""
        return seq.num_tokens // self.block_size if self.enable_prefix_cache else 0

    def num_spared_tokens(self, seq: Sequence, num_blocks: int) -> int:
        """Return the tokens that `num_blocks` cached blocks save; the last token is always computed."""
        return min(num_blocks * self.block_size, seq.num_tokens - 1)

    def digest(self, seq: Sequence, index: int) -> bytes:
        """Return the chained digest of the sequence's full block `index`."""
        return self._index.digest(seq, index)

    def num_new_blocks(self, seq: Sequence, prefix: list[int], num_tokens: int) -> int:
        """Return the free blocks needed to hold `num_tokens` after `prefix`, whose unused blocks count too."""
        num_in_use = sum(1 for block_id in prefix if self._ref_counts[block_id])
        return self._blocks_behind(prefix, num_tokens) - num_in_use

    def can_allocate(self, seq: Sequence, prefix: list[int]) -> bool:
        """Return whether all known tokens of a sequence without blocks fit now."""
        return self.num_new_blocks(seq, prefix, seq.num_tokens) <= len(self._free)

    def allocate(self, seq: Sequence, prefix: list[int], num_growth_tokens: int = 0) -> None:
        """Allocate blocks for all known tokens, and share the leading ones.

        Args:
            seq: Sequence without blocks.
            prefix: Fresh result of `find_prefix`.
            num_growth_tokens: Hint of the room to leave behind the sequence, so that it stays contiguous.
        """
        assert not seq.block_table
        assert self.can_allocate(seq, prefix)
        for block_id in prefix:
            self._acquire(block_id)
        num_needed = self._blocks_behind(prefix, seq.num_tokens)
        num_new = num_needed - len(prefix)
        num_growth = max(0, self.blocks_for(seq.num_tokens + num_growth_tokens) - num_needed)
        new = self._free.take_run(num_new, num_growth)
        for block_id in new:
            self._adopt(block_id)
        seq.block_table.extend(prefix)
        seq.block_table.extend(new)
        seq.num_computed_tokens = self.num_spared_tokens(seq, len(prefix))
        seq.num_shared_tokens = len(prefix) * self.block_size
        seq.num_registered_blocks = len(prefix)
        if self.states is not None:
            self.states.begin(seq.seq_id, prefix, len(self._cached_blocks(seq)))
        if self._windows is not None:
            # At once, so that no other sequence takes the places before the step.
            self._windows.hold(seq, len(prefix))

    def hold_windows(self, chunks: Iterable[ScheduledChunk]) -> None:
        """Make room for what a step stores in layers with a sliding window."""
        if self._windows is None:
            return
        for chunk in chunks:
            seq = chunk.seq
            # Behind a text's last token lie its draft tokens and those of further steps.
            is_last = chunk.end >= seq.num_tokens
            self._windows.hold(seq, len(seq.block_table) if is_last else self.blocks_for(chunk.end))

    def can_append(self, seq: Sequence, num_tokens: int) -> bool:
        """Return whether the sequence's table can grow to hold `num_tokens` tokens in total."""
        return self.blocks_for(num_tokens) - len(seq.block_table) <= len(self._free)

    def append(self, seq: Sequence, num_tokens: int) -> None:
        """Grow the table of a sequence that has blocks to hold `num_tokens` tokens in total."""
        for _ in range(self.blocks_for(num_tokens) - len(seq.block_table)):
            block_id = self._free.take_after(seq.block_table[-1])
            self._adopt(block_id)
            seq.block_table.append(block_id)

    def shrink(self, seq: Sequence) -> None:
        """Release blocks beyond the sequence's known tokens, which were allocated for rejected draft tokens."""
        num_needed = self.blocks_for(seq.num_tokens)
        if self._windows is not None:
            self._windows.truncate(seq, num_needed)
        while len(seq.block_table) > num_needed:
            self._release(seq.block_table.pop())

    def register(self, seq: Sequence) -> None:
        """Add blocks that are full of computed, accepted tokens to the prefix index; release blocks behind windows."""
        if self._windows is not None:
            self._windows.release_behind(seq)
        num_full = seq.num_computed_tokens // self.block_size
        if num_full <= seq.num_registered_blocks or not self.enable_prefix_cache:
            return
        for index in range(seq.num_registered_blocks, num_full):
            if self._windows is not None:
                self._drop_passed(seq, index, self._windows)
            self._index.insert(seq, index)
            twin = self._index.find(seq, index) if self.states is not None else None
            if self.states is not None and twin is not None:
                self.states.share(seq.block_table[index], twin)
        seq.num_registered_blocks = num_full

    def free(self, seq: Sequence) -> None:
        """Free the sequence's blocks, tail first, so that the least shareable ones are evicted first."""
        self.num_frees += 1
        if self.states is not None:
            self.states.end(seq.seq_id, seq.block_table, seq.num_computed_tokens)
        if self._windows is not None:
            self._windows.truncate(seq, 0)
            seq.held_start = seq.held_end = 0
        for block_id in reversed(seq.block_table):
            self._release(block_id)
        del seq.block_table[:]
        seq.num_computed_tokens = seq.num_shared_tokens = 0
        seq.num_registered_blocks = 0

    def num_leaked(self, holders: Iterable[Sequence]) -> int:
        """Return the references that no sequence in `holders` (all that have blocks) accounts for; must be 0."""
        return self._num_references - sum(len(seq.block_table) for seq in holders)

    def check_integrity(self, holders: Iterable[Sequence]) -> None:
        """Raise AssertionError unless every block is free or referenced by exactly the given sequences' tables."""
        holders = list(holders)
        if self.states is not None:
            self.states.check_integrity(seq.seq_id for seq in holders)
        if self._windows is not None:
            self._windows.check_integrity(holders)
        references = Counter(block_id for seq in holders for block_id in seq.block_table)
        for block_id in range(self.num_blocks):
            count = self._ref_counts[block_id]
            assert count == references[block_id], (
                f"block {block_id}: {count} references, {references[block_id]} holders"
            )
            assert (count == 0) == (block_id in self._free), f"block {block_id}: free and held at once, or neither"
        assert self._num_references == references.total(), "reference total is off"
        cached = sum(1 for block_id in range(self.num_blocks) if block_id in self._free and self._index.holds(block_id))
        assert cached == self._free.num_cached, f"{cached} cached blocks are free, {self._free.num_cached} counted"
        self._index.check_integrity()

    def _blocks_behind(self, prefix: list[int], num_tokens: int) -> int:
        """Return the blocks of a table that starts with `prefix` and holds `num_tokens`; at least one is not shared."""
        return max(self.blocks_for(num_tokens), len(prefix) + 1)

    def _drop_passed(self, seq: Sequence, index: int, windows: WindowBlocks) -> None:
        """Drop an equal block whose place in windowed layers is gone, so that the sequence's own is found instead."""
        block_id = self._index.find(seq, index)
        if block_id is None or block_id == seq.block_table[index] or windows.has_place(block_id):
            return
        self._index.drop(block_id)
        if not self._ref_counts[block_id]:
            self._free.remove(block_id)
            self._free.put(block_id, is_cached=False)

    def _acquire(self, block_id: int) -> None:
        if not self._ref_counts[block_id]:
            self._free.remove(block_id)
        self._ref_counts[block_id] += 1
        self._num_references += 1

    def _adopt(self, block_id: int) -> None:
        """Reset a block from the free list for new content."""
        self._index.drop(block_id)
        if self.states is not None:
            self.states.drop(block_id)
        if self._windows is not None:
            self._windows.forget(block_id)
        self._ref_counts[block_id] = 1
        self._num_references += 1

    def _release(self, block_id: int) -> None:
        assert self._ref_counts[block_id] > 0
        self._ref_counts[block_id] -= 1
        self._num_references -= 1
        if not self._ref_counts[block_id]:
            self._free.put(block_id, is_cached=self._index.holds(block_id))
