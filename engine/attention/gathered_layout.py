"""Layout of gathered sequences from step to step: removal of ended ones, reuse of places, new groups. Pure.

Sequence numbers are indices into a step's `Decoded`; slots count from the start of the gathered memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.attention.buckets import buckets_of

HEADROOM_SLOTS = 64
"""Number of tokens that a sequence can gain in the place opened for it."""
_MIN_ROOM_SLOTS = 24
"""Minimum number of free slots behind a sequence for it to take a used place."""
_MAX_WIDTH_RATIO = 1.5
"""Largest ratio of a place's width to the sequence's length, headroom aside."""
_SEQS_PER_SPARE_PLACE = 4


class Move(NamedTuple):
    """Copy of a sequence's slots to other slots."""

    source: int
    target: int
    width: int


class Joined(NamedTuple):
    """Adjacent sequences of one group that are not gathered yet."""

    group: int
    first: int
    """Place of the first of them; the others are all after it."""


@dataclass(frozen=True, slots=True)
class GatheredGroup:
    """Adjacent places of one width, of which the first ones are occupied."""

    start: int
    """Slot of the first place."""
    num_places: int
    width: int
    """Number of slots of a place."""
    sequences: tuple[int, ...]
    """Sequence number of each occupied place."""

    @property
    def end(self) -> int:
        """Slot after the last place."""
        return self.start + self.num_places * self.width

    def slot(self, place: int) -> int:
        """Return the first slot of a place."""
        return self.start + place * self.width

    def suits(self, length: int) -> bool:
        """Return whether a free place of the group fits a sequence of this length without much waste."""
        widest = max(length, HEADROOM_SLOTS) * _MAX_WIDTH_RATIO + HEADROOM_SLOTS
        return len(self.sequences) < self.num_places and length + _MIN_ROOM_SLOTS <= self.width <= widest


@dataclass(frozen=True, slots=True)
class Layout:
    """Groups of gathered sequences, and the changes from the previous layout."""

    groups: tuple[GatheredGroup, ...] = ()
    """Groups in the order of their slots; some may be empty."""
    moves: tuple[Move, ...] = ()
    """Copies in this order, before anything is gathered."""
    joined: tuple[Joined, ...] = ()
    num_reserved: int = 0
    """Number of slots that are allocated."""
    is_new: bool = False
    """True if everything is gathered again."""

    @property
    def num_slots(self) -> int:
        """Number of slots of all groups."""
        return self.groups[-1].end if self.groups else 0

    @property
    def sequences(self) -> set[int]:
        """Sequence numbers of all sequences in the layout."""
        return {seq for group in self.groups for seq in group.sequences}

    def next(
        self,
        followers: Mapping[int, int],
        lengths: Sequence[int],
        wanted: Iterable[int],
        *,
        block_size: int,
        max_slots: int,
    ) -> Layout | None:
        """Return the layout of the next step.

        Args:
            followers: Next sequence number of this layout's sequences, without those that ended.
            lengths: Lengths of all sequences of the next step.
            wanted: Sequences of the next step to gather.
            block_size: Tokens in a block.
            max_slots: Limit of the layout's slots.

        Returns:
            The layout; None if it would be empty or exceed `max_slots`.
        """
        stayed = self._without(followers, lengths)
        joining = sorted(set(wanted) - stayed.sequences)
        found = stayed._joined_by(joining, lengths, block_size)
        sequences = found.sequences
        if not sequences:
            return None
        buckets = buckets_of(sequences, lengths)
        num_taken = sum(bool(group.sequences) for group in found.groups)
        if found.num_slots <= self.num_reserved and num_taken <= len(buckets):
            return found  # more groups than needed: arrange everything again
        found = Layout(is_new=True)._with_groups(buckets, lengths, block_size)
        if found.num_slots > max_slots:
            return None
        return replace(found, num_reserved=min(max_slots, 2 * found.num_slots))

    def _without(self, followers: Mapping[int, int], lengths: Sequence[int]) -> Layout:
        """Return the layout without sequences that ended or outgrew their places; later sequences fill the gaps.

        Sequences that outgrow their places soon leave together with those that did, so that they join a new group
        together.
        """
        groups: list[GatheredGroup] = []
        moves: list[Move] = []
        for group in self.groups:
            places = [followers.get(seq) for seq in group.sequences]
            if any(seq is not None and lengths[seq] > group.width for seq in places):
                limit = group.width - _MIN_ROOM_SLOTS
                places = [None if seq is None or lengths[seq] > limit else seq for seq in places]
            while None in places:
                last = places.pop()
                if last is not None:
                    hole = places.index(None)
                    places[hole] = last
                    moves.append(Move(group.slot(len(places)), group.slot(hole), group.width))
            groups.append(replace(group, sequences=tuple(seq for seq in places if seq is not None)))
        return Layout(tuple(groups), tuple(moves), num_reserved=self.num_reserved)

    def _joined_by(self, joining: Sequence[int], lengths: Sequence[int], block_size: int) -> Layout:
        """Return the layout with sequences added to the narrowest free places that suit them, or to new groups."""
        groups = list(self.groups)
        joined: dict[int, Joined] = {}
        homeless: list[int] = []
        for seq in joining:
            suiting = [index for index, group in enumerate(groups) if group.suits(lengths[seq])]
            if suiting:
                index = min(suiting, key=lambda index: groups[index].width)
                joined.setdefault(index, Joined(index, len(groups[index].sequences)))
                groups[index] = replace(groups[index], sequences=(*groups[index].sequences, seq))
            else:
                homeless.append(seq)
        while groups and not groups[-1].sequences:
            groups.pop()
        layout = replace(self, groups=tuple(groups), joined=tuple(joined.values()))
        return layout._with_groups(buckets_of(homeless, lengths), lengths, block_size)

    def _with_groups(self, buckets: Sequence[Sequence[int]], lengths: Sequence[int], block_size: int) -> Layout:
        """Return the layout with new groups for these sequences at the end, with some spare places."""
        groups, joined, start = list(self.groups), list(self.joined), self.num_slots
        for bucket in buckets:
            num_blocks = -(-max(lengths[seq] for seq in bucket) // block_size) + -(-HEADROOM_SLOTS // block_size)
            num_places = len(bucket) + len(bucket) // _SEQS_PER_SPARE_PLACE
            joined.append(Joined(len(groups), 0))
            groups.append(GatheredGroup(start, num_places, num_blocks * block_size, tuple(bucket)))
            start = groups[-1].end
        return replace(self, groups=tuple(groups), joined=tuple(joined))
