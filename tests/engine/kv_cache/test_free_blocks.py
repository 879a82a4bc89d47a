"""The free list: O(1) LRU order, and runs that stay contiguous."""

from __future__ import annotations

import pytest

from engine.kv_cache.free_blocks import FreeBlocks


def test_a_fresh_pool_gives_ascending_runs_with_room_to_grow() -> None:
    free = FreeBlocks(16)
    assert free.take_run(2, 3) == [0, 1]
    assert free.take_run(2, 3) == [5, 6]
    assert free.take_after(1) == 2
    assert free.take_after(6) == 7


def test_the_cursor_wraps_and_skips_what_is_in_use() -> None:
    free = FreeBlocks(8)
    assert free.take_run(3, 0) == [0, 1, 2]
    assert free.take_run(4, 0) == [3, 4, 5, 6]
    for block_id in (0, 1, 2):
        free.put(block_id, is_cached=False)
    assert free.take_run(2, 0) == [0, 1]


def test_scattered_blocks_come_in_ascending_order() -> None:
    free = FreeBlocks(6)
    free.take_run(6, 0)
    for block_id in (5, 1, 3):
        free.put(block_id, is_cached=False)
    assert free.take_run(3, 0) == [1, 3, 5]


def test_blank_blocks_go_before_cached_ones_and_those_in_the_order_freed() -> None:
    free = FreeBlocks(4)
    free.take_run(4, 0)
    free.put(2, is_cached=True)
    free.put(0, is_cached=True)
    free.put(3, is_cached=False)
    assert free.num_cached == 2
    # 1 is in use, so the neighbour of 0 is not to be had and the oldest goes.
    assert [free.take_after(0) for _ in range(3)] == [3, 2, 0]
    assert free.num_cached == 0


def test_a_recently_cached_neighbour_is_not_evicted_for_the_sake_of_contiguity() -> None:
    free = FreeBlocks(8)
    free.take_run(8, 0)
    free.put(7, is_cached=True)
    free.put(1, is_cached=True)
    assert free.take_after(0) == 7


def test_a_long_cached_neighbour_may_be_evicted_for_contiguity() -> None:
    free = FreeBlocks(8)
    free.take_run(8, 0)
    for block_id in (7, 1, 2, 3, 4, 5, 6):
        free.put(block_id, is_cached=True)
    assert free.take_after(0) == 1


def test_an_empty_list_gives_nothing() -> None:
    free = FreeBlocks(1)
    free.take_run(1, 0)
    with pytest.raises(KeyError):
        free.take_after(0)
    with pytest.raises(KeyError):
        free.remove(0)
