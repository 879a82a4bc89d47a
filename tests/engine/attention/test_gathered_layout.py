"""Places of gathered sequences: stored from step to step, reused, and arranged anew when they do not suffice."""

from __future__ import annotations

import random
from itertools import pairwise

from engine.attention.gathered_layout import HEADROOM_SLOTS, Layout, Move

BLOCK = 16


def opened(*lengths: int, max_slots: int = 100_000) -> Layout | None:
    return Layout().next({}, lengths, range(len(lengths)), block_size=BLOCK, max_slots=max_slots)


def places(layout: Layout) -> dict[int, tuple[int, int]]:
    """Return the first slot and the width of each sequence."""
    return {
        seq: (group.slot(place), group.width) for group in layout.groups for place, seq in enumerate(group.sequences)
    }


def test_new_sequences_get_whole_blocks_with_headroom() -> None:
    layout = opened(10, 20)
    assert layout is not None
    assert layout.is_new
    assert places(layout) == {0: (0, 96), 1: (96, 96)}
    assert layout.groups[0].width >= 20 + HEADROOM_SLOTS


def test_nothing_to_gather_and_too_much_to_gather_have_no_layout() -> None:
    assert opened() is None
    assert opened(10, 20, max_slots=191) is None
    assert opened(10, 20, max_slots=192) is not None


def test_a_sequence_that_ended_leaves_its_place_to_the_last_one() -> None:
    layout = opened(10, 20, 30)
    assert layout is not None
    later = layout.next({0: 0, 2: 1}, [11, 31], [0, 1], block_size=BLOCK, max_slots=100_000)
    assert later is not None
    assert not later.is_new
    (group,) = later.groups
    assert group.sequences == (0, 1)
    assert later.moves == (Move(group.slot(2), group.slot(1), group.width),)
    assert later.joined == ()


def test_a_new_sequence_takes_a_free_place_and_is_gathered_alone() -> None:
    layout = opened(10, 20, 30)
    assert layout is not None
    later = layout.next({0: 0, 1: 1}, [11, 21, 40], [0, 1, 2], block_size=BLOCK, max_slots=100_000)
    assert later is not None
    assert places(later)[2] == places(layout)[2]
    assert [(joined.group, joined.first) for joined in later.joined] == [(0, 2)]


def test_a_sequence_that_outgrew_its_place_is_gathered_again() -> None:
    layout = opened(10)
    assert layout is not None
    width = layout.groups[0].width
    later = layout.next({0: 0}, [width + 1], [0], block_size=BLOCK, max_slots=100_000)
    assert later is not None
    assert places(later)[0][1] > width
    assert later.joined


def test_places_never_overlap_and_hold_their_rows_whatever_comes_and_goes() -> None:
    rng = random.Random(5)
    layout, lengths = None, list[int]()
    for _ in range(300):
        stayed = [seq for seq in range(len(lengths)) if rng.random() < 0.95]
        followers = {seq: index for index, seq in enumerate(stayed)} if layout is not None else {}
        retained: dict[int, int] = (
            {} if layout is None else {seq: now for seq, now in followers.items() if seq in layout.sequences}
        )
        lengths = [lengths[seq] + 1 for seq in stayed] + [rng.randrange(1, 900) for _ in range(rng.randrange(3))]
        before = Layout() if layout is None else layout
        layout = before.next(retained, lengths, range(len(lengths)), block_size=BLOCK, max_slots=20_000)
        if layout is None:
            continue
        spans = sorted(places(layout).values())
        assert all(start + width <= following for (start, width), (following, _) in pairwise(spans))
        assert all(width >= lengths[seq] for seq, (_, width) in places(layout).items())
        assert layout.num_slots <= layout.num_reserved <= 20_000
