"""Slots of recurrent states: those of running sequences, and saved ones at the ends of blocks for prefix reuse.

A step reads a sequence's state in one slot and writes the next one to another, so that it can be computed again. A
chunk also saves the states at its last block border, and at the border up to which other prompts began alike. Saved
states belong to their block: they leave with its content, or when slots run out, the one used longest ago first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.attention.step_states import StateUse

SLOTS_PER_SEQUENCE = 4
"""A running sequence's states before and behind a step, and the two that the step may save."""
_NUM_SAVED = 32
"""Number of slots for saved states beside those."""


class StateRequest(NamedTuple):
    """Tokens [start, end) of a sequence in a step."""

    seq_id: int
    block_table: Sequence[int]
    start: int
    end: int


class StateSlots:
    """Owner of the slots; a slot is free, or held by sequences, by a block, or by both."""

    def __init__(self, max_num_seqs: int, block_size: int) -> None:
        self.num_slots = num_state_slots(max_num_seqs)
        self._block_size = block_size
        self._free = list(range(self.num_slots))
        self._num_holders = [0] * self.num_slots
        self._live: dict[int, dict[int, int]] = {}
        """Slots of each sequence by the number of tokens behind which the state is."""
        self._wanted: dict[int, int] = {}
        """Number of tokens of each sequence behind which its state is saved for others that begin alike."""
        self._saved: OrderedDict[int, int] = OrderedDict()
        """Slots by block, the one used longest ago first."""

    @property
    def num_free(self) -> int:
        """Number of slots without a holder."""
        return len(self._free)

    def num_reusable(self, prefix: Sequence[int], num_tokens: int) -> int:
        """Return how many of a prefix's blocks a sequence of `num_tokens` tokens can begin behind."""
        for count in range(len(prefix), 0, -1):
            if count * self._block_size < num_tokens and prefix[count - 1] in self._saved:
                return count
        return 0

    def begin(self, seq_id: int, prefix: Sequence[int], num_known: int) -> None:
        """Let a sequence begin behind the blocks of a reusable prefix.

        Args:
            seq_id: Id of the sequence.
            prefix: Blocks of the prefix.
            num_known: Number of its leading blocks whose keys and values are cached, with or without a saved state.
        """
        assert seq_id not in self._live
        self._wanted[seq_id] = num_known * self._block_size
        if prefix:
            slot = self._saved[prefix[-1]]
            self._saved.move_to_end(prefix[-1])
            self._hold(slot)
            self._live[seq_id] = {len(prefix) * self._block_size: slot}

    def plan(self, requests: Iterable[StateRequest]) -> list[StateUse]:
        """Return the slots that a step reads and writes.

        Raises:
            RuntimeError: A sequence's state is not there.
        """
        return [self._plan(request) for request in requests]

    def end(self, seq_id: int, block_table: Sequence[int], num_computed: int) -> None:
        """Release the slots of a sequence that gives its blocks back; a state at a block border stays saved."""
        self._wanted.pop(seq_id, None)
        for position, slot in self._live.pop(seq_id, {}).items():
            if position <= num_computed:
                self._save(block_table, position, slot)
            self._let_go(slot)

    def drop(self, block_id: int) -> None:
        """Forget the state saved with a block, whose content leaves."""
        slot = self._saved.pop(block_id, None)
        if slot is not None:
            self._let_go(slot)

    def share(self, block_id: int, twin: int) -> None:
        """Save a block's state, if there is one, with a block of equal content too."""
        slot = self._saved.get(block_id)
        if slot is not None and twin not in self._saved:
            self._saved[twin] = slot
            self._hold(slot)

    def check_integrity(self, seq_ids: Iterable[int]) -> None:
        """Raise AssertionError unless every slot is free or held, and only by saved blocks and these sequences."""
        assert self._live.keys() <= set(seq_ids), "a sequence without blocks holds states"
        held = [*self._saved.values(), *(slot for slots in self._live.values() for slot in slots.values())]
        counts = [held.count(slot) for slot in range(self.num_slots)]
        assert counts == self._num_holders, "holders of states are miscounted"
        assert sorted(self._free) == [slot for slot, count in enumerate(counts) if not count], "free states differ"

    def _plan(self, request: StateRequest) -> StateUse:
        seq_id, table, start, end = request
        live = self._live.setdefault(seq_id, {})
        for position in [position for position in live if position != start]:
            slot = live.pop(position)
            if position < start:
                self._save(table, position, slot)
            elif position % self._block_size == 0 and self._saved.get(self._block_at(table, position)) == slot:
                # The step failed: what it saved may not be complete.
                self.drop(self._block_at(table, position))
            self._let_go(slot)
        read = live.get(start) if start else None
        if start:
            if read is None:
                raise RuntimeError(f"sequence {seq_id}: the state behind token {start} is lost")
            self._save(table, start, read)
        write = live[end] = self._take()
        self._hold(write)
        self._save(table, end, write)
        # The same prompt again computes at least its last token.
        borders = {(end - 1) // self._block_size * self._block_size, self._wanted.get(seq_id, 0)}
        saved = [
            (border - start, self._saved_slot(self._block_at(table, border)))
            for border in sorted(borders)
            if start < border < end
        ]
        return StateUse(read, write, tuple(saved))

    def _saved_slot(self, block_id: int) -> int:
        """Return the slot of the state saved with a block, a new one if there is none."""
        if block_id not in self._saved:
            self._saved[block_id] = self._take()
            self._hold(self._saved[block_id])
        return self._saved[block_id]

    def _save(self, block_table: Sequence[int], position: int, slot: int) -> None:
        """Save a computed state with the block that ends at its position, if any does."""
        if position % self._block_size:
            return
        block_id = self._block_at(block_table, position)
        if block_id not in self._saved:
            self._saved[block_id] = slot
            self._hold(slot)

    def _block_at(self, block_table: Sequence[int], position: int) -> int:
        """Return the block that ends at a position, which is a border."""
        return block_table[position // self._block_size - 1]

    def _take(self) -> int:
        while not self._free:
            _, slot = self._saved.popitem(last=False)
            self._let_go(slot)
        return self._free.pop()

    def _hold(self, slot: int) -> None:
        self._num_holders[slot] += 1

    def _let_go(self, slot: int) -> None:
        self._num_holders[slot] -= 1
        if not self._num_holders[slot]:
            self._free.append(slot)


def num_state_slots(max_num_seqs: int) -> int:
    """Return the number of slots for so many running sequences."""
    return SLOTS_PER_SEQUENCE * max_num_seqs + _NUM_SAVED
