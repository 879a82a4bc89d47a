"""Blocks of layers with a sliding window, which keep a sequence's window only.

Block tables name blocks of the whole pool. Layers with a window have a smaller pool of their own, and `places` names
the block there that holds the same positions. A block has such a place from the step that computes it until all windows
have passed it, and longer while no other block needs the place: a prefix can be reused as long as the window at its end
is still there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf

import numpy as np
import numpy.typing as npt

from engine.step.sequence import Sequence

_NOWHERE = -1


def window_pool_blocks(
    window: int, block_size: int, *, max_num_seqs: int, max_num_batched_tokens: int, max_reach: int
) -> int:
    """Return the number of blocks that suffices for the windows of all running sequences, whatever they compute.

    Args:
        window: Longest window of a layer, in tokens.
        block_size: Tokens of a block.
        max_num_seqs: Running sequences.
        max_num_batched_tokens: Tokens of a step.
        max_reach: Tokens behind a sequence's end that a step may store: drafts, and further steps in the same call.
    """
    # A window and what is stored behind it may begin and end within a block.
    of_sequence = -(-window // block_size) + -(-max_reach // block_size) + 2
    return max_num_seqs * of_sequence + -(-max_num_batched_tokens // block_size)


class WindowBlocks:
    """Owner of the places in the pool of windowed layers."""

    def __init__(self, num_blocks: int, num_places: int, *, window: int, block_size: int) -> None:
        self.window = window
        self.num_places = num_places
        self.places: npt.NDArray[np.int64] = np.arange(num_blocks, dtype=np.int64) % num_places
        """int64 [blocks]: place of each block; meaningless for blocks that have none."""
        self._block_size = block_size
        self._block_of = [_NOWHERE] * num_places
        self._has_place = [False] * num_blocks
        self._num_holders = [0] * num_places
        # Places that no sequence holds: blank ones first, then in the order in which they were released.
        self._idle: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_places))

    @property
    def num_held(self) -> int:
        """Number of places that running sequences need."""
        return self.num_places - len(self._idle)

    def has_place(self, block_id: int) -> bool:
        """Return whether a block's content is in the pool of windowed layers."""
        return self._has_place[block_id]

    def usable_prefix(self, block_ids: SequenceOf[int]) -> int:
        """Return how many of a prefix's cached blocks can be reused: those whose last window is still there."""
        usable = run = 0
        for index, block_id in enumerate(block_ids, 1):
            run = run + 1 if self._has_place[block_id] else 0
            # The last token is computed again if nothing follows the prefix.
            first_seen = max(0, index * self._block_size - self.window) // self._block_size
            if run >= index - first_seen:
                usable = index
        return usable

    def hold(self, seq: Sequence, num_blocks: int) -> None:
        """Give places to a sequence's blocks from its window on, up to `num_blocks` of its table."""
        if seq.held_end == 0:
            seq.held_start = seq.held_end = self._first_seen(seq)
        for index in range(seq.held_end, num_blocks):
            self._acquire(seq.block_table[index])
        seq.held_end = max(seq.held_end, num_blocks)

    def release_behind(self, seq: Sequence) -> None:
        """Release the blocks that a sequence's window has passed."""
        first_seen = min(self._first_seen(seq), seq.held_end)
        for index in range(seq.held_start, first_seen):
            self._release(seq.block_table[index])
        seq.held_start = max(seq.held_start, first_seen)

    def truncate(self, seq: Sequence, num_blocks: int) -> None:
        """Release a sequence's blocks from `num_blocks` of its table on, whose content is worth nothing."""
        for index in range(max(num_blocks, seq.held_start), seq.held_end):
            self._release(seq.block_table[index])
        seq.held_end = min(seq.held_end, num_blocks)
        seq.held_start = min(seq.held_start, seq.held_end)

    def forget(self, block_id: int) -> None:
        """Take the place of a block that gets new content; no sequence holds it."""
        if self._has_place[block_id]:
            place = int(self.places[block_id])
            assert not self._num_holders[place], "a block with new content is held for its old one"
            self._has_place[block_id] = False
            self._block_of[place] = _NOWHERE
            self._idle.move_to_end(place, last=False)

    def check_integrity(self, holders: Iterable[Sequence]) -> None:
        """Raise AssertionError unless exactly the given sequences' windows hold places."""
        counts = [0] * self.num_places
        for seq in holders:
            for index in range(seq.held_start, seq.held_end):
                block_id = seq.block_table[index]
                assert self._has_place[block_id], f"block {block_id} is held and has no place"
                counts[int(self.places[block_id])] += 1
        assert counts == self._num_holders, "places are held by others than the running sequences"
        for place, block_id in enumerate(self._block_of):
            assert (self._num_holders[place] == 0) == (place in self._idle), f"place {place}: idle and held, or neither"
            assert block_id == _NOWHERE or (self._has_place[block_id] and self.places[block_id] == place)

    def _first_seen(self, seq: Sequence) -> int:
        return max(0, seq.num_computed_tokens + 1 - self.window) // self._block_size

    def _acquire(self, block_id: int) -> None:
        if not self._has_place[block_id]:
            assert self._idle, "the pool of windowed layers holds fewer blocks than the windows of all sequences"
            place = next(iter(self._idle))
            if self._block_of[place] != _NOWHERE:
                self._has_place[self._block_of[place]] = False
            self._block_of[place], self.places[block_id], self._has_place[block_id] = block_id, place, True
        place = int(self.places[block_id])
        if not self._num_holders[place]:
            del self._idle[place]
        self._num_holders[place] += 1

    def _release(self, block_id: int) -> None:
        place = int(self.places[block_id])
        self._num_holders[place] -= 1
        if not self._num_holders[place]:
            self._idle[place] = None
