"""Where decoding rows are kept from step to step: some leave, others take their places, groups are opened. Pure.

Rows are indices into those of a step's `Decoded`; slots are counted from the begin of what is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.attention.buckets import buckets_of

HEADROOM_SLOTS = 64
"""So many tokens can a row get in the place that was opened for it."""
_MIN_ROOM_SLOTS = 24
"""A place that another row left is worth taking with room for so many tokens."""
_MAX_WIDTH_RATIO = 1.5
"""A row takes no place wider than so many times its length, headroom aside."""
_ROWS_TO_A_SPARE_PLACE = 4


class Move(NamedTuple):
    """A row's slots that are copied to other slots."""

    source: int
    target: int
    width: int


class Joined(NamedTuple):
    """Rows of one group, side by side, that have yet to be gathered."""

    group: int
    first: int
    """Place of the first of them; the others are all behind it."""


@dataclass(frozen=True, slots=True)
class GatheredGroup:
    """Places of one width side by side, the first of them taken."""

    start: int
    """Slots before it."""
    num_places: int
    width: int
    """Slots of a place."""
    rows: tuple[int, ...]
    """By place."""

    @property
    def end(self) -> int:
        """Slots before what comes behind it."""
        return self.start + self.num_places * self.width

    def slot(self, place: int) -> int:
        """The first of a place."""
        return self.start + place * self.width

    def suits(self, length: int) -> bool:
        """Whether a row of this length would do well in a place that is free."""
        widest = max(length, HEADROOM_SLOTS) * _MAX_WIDTH_RATIO + HEADROOM_SLOTS
        return len(self.rows) < self.num_places and length + _MIN_ROOM_SLOTS <= self.width <= widest


@dataclass(frozen=True, slots=True)
class Layout:
    """Groups, and what leads to them from those before."""

    groups: tuple[GatheredGroup, ...] = ()
    """Some may be empty."""
    moves: tuple[Move, ...] = ()
    """To be carried out in this order, before anything is gathered."""
    joined: tuple[Joined, ...] = ()
    num_reserved: int = 0
    """Slots that there is room for."""
    is_new: bool = False
    """Whether everything is gathered."""

    @property
    def num_slots(self) -> int:
        """That the groups take."""
        return self.groups[-1].end if self.groups else 0

    @property
    def rows(self) -> set[int]:
        """All that are kept."""
        return {row for group in self.groups for row in group.rows}

    def next(
        self,
        followers: Mapping[int, int],
        lengths: Sequence[int],
        wanted: Iterable[int],
        *,
        block_size: int,
        max_slots: int,
    ) -> Layout | None:
        """The layout for the step behind this one; None when nothing is to be kept or it takes too many slots.

        `followers`: what this layout's rows are called then, without those that went; `lengths` of all rows then;
        `wanted`: those of them that ought to be kept.
        """
        stayed = self._without(followers, lengths)
        joining = sorted(set(wanted) - stayed.rows)
        found = stayed._joined_by(joining, lengths, block_size)
        rows = found.rows
        if not rows:
            return None
        buckets = buckets_of(rows, lengths)
        num_taken = sum(bool(group.rows) for group in found.groups)
        if found.num_slots <= self.num_reserved and num_taken <= len(buckets):
            return found  # with more groups than the rows need, everything is arranged anew
        found = Layout(is_new=True)._opened(buckets, lengths, block_size)
        if found.num_slots > max_slots:
            return None
        return replace(found, num_reserved=min(max_slots, 2 * found.num_slots))

    def _without(self, followers: Mapping[int, int], lengths: Sequence[int]) -> Layout:
        """Without the rows that went or have outgrown their places, which are closed up.

        Rows that will have outgrown theirs soon go with those that have, so that they find new places together.
        """
        groups: list[GatheredGroup] = []
        moves: list[Move] = []
        for group in self.groups:
            places = [followers.get(row) for row in group.rows]
            if any(row is not None and lengths[row] > group.width for row in places):
                limit = group.width - _MIN_ROOM_SLOTS
                places = [None if row is None or lengths[row] > limit else row for row in places]
            while None in places:
                last = places.pop()
                if last is not None:
                    hole = places.index(None)
                    places[hole] = last
                    moves.append(Move(group.slot(len(places)), group.slot(hole), group.width))
            groups.append(replace(group, rows=tuple(row for row in places if row is not None)))
        return Layout(tuple(groups), tuple(moves), num_reserved=self.num_reserved)

    def _joined_by(self, joining: Sequence[int], lengths: Sequence[int], block_size: int) -> Layout:
        """With rows in the narrowest free places that suit them; groups are opened for the others."""
        groups = list(self.groups)
        joined: dict[int, Joined] = {}
        homeless: list[int] = []
        for row in joining:
            suiting = [index for index, group in enumerate(groups) if group.suits(lengths[row])]
            if suiting:
                index = min(suiting, key=lambda index: groups[index].width)
                joined.setdefault(index, Joined(index, len(groups[index].rows)))
                groups[index] = replace(groups[index], rows=(*groups[index].rows, row))
            else:
                homeless.append(row)
        while groups and not groups[-1].rows:
            groups.pop()
        layout = replace(self, groups=tuple(groups), joined=tuple(joined.values()))
        return layout._opened(buckets_of(homeless, lengths), lengths, block_size)

    def _opened(self, buckets: Sequence[Sequence[int]], lengths: Sequence[int], block_size: int) -> Layout:
        """With groups for these rows behind the others, and places to spare in them for rows to come."""
        groups, joined, start = list(self.groups), list(self.joined), self.num_slots
        for bucket in buckets:
            num_blocks = -(-max(lengths[row] for row in bucket) // block_size) + -(-HEADROOM_SLOTS // block_size)
            num_places = len(bucket) + len(bucket) // _ROWS_TO_A_SPARE_PLACE
            joined.append(Joined(len(groups), 0))
            groups.append(GatheredGroup(start, num_places, num_blocks * block_size, tuple(bucket)))
            start = groups[-1].end
        return replace(self, groups=tuple(groups), joined=tuple(joined))
