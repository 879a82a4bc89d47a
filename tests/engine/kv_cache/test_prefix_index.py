"""Full blocks by all tokens up to their end."""

from __future__ import annotations

from typing import Any

import pytest

from engine.kv_cache.prefix_index import PrefixIndex
from engine.step.sequence import Sequence
from tests.engine.step.sequences import sequence


def holding(tokens: list[int], blocks: list[int], **options: Any) -> Sequence:
    seq = sequence(tokens, **options)
    seq.block_table.extend(blocks)
    return seq


def filled() -> PrefixIndex:
    """Return the index of a sequence of two blocks of two tokens, in the blocks 3 and 5."""
    index = PrefixIndex(num_blocks=8, block_size=2)
    seq = holding([1, 2, 3, 4], [3, 5])
    for number in range(2):
        index.insert(seq, number)
    return index


@pytest.mark.parametrize(
    ("tokens", "found"), [([1, 2, 3, 4], [3, 5]), ([1, 2, 9, 4], [3, None]), ([9, 2, 3, 4], [None, None])]
)
def test_a_block_is_found_only_behind_the_same_tokens(tokens: list[int], found: list[int | None]) -> None:
    index, seq = filled(), sequence(tokens)
    assert [index.find(seq, number) for number in range(2)] == found


def test_another_salt_shares_nothing() -> None:
    assert filled().find(sequence([1, 2, 3, 4], cache_salt=b"x"), 0) is None


def test_the_first_of_equal_blocks_stays_and_a_dropped_one_is_not_found() -> None:
    index = filled()
    index.insert(holding([1, 2], [7]), 0)
    assert (len(index), index.holds(7)) == (2, False)
    index.drop(3)
    index.drop(3)
    assert index.find(sequence([1, 2, 3, 4]), 0) is None
    assert index.find(sequence([1, 2, 3, 4]), 1) == 5
    index.check_integrity()


def test_a_digest_that_only_collides_is_a_miss() -> None:
    index, other = filled(), sequence([7, 8])
    other.block_digests.append(index.digest(sequence([1, 2]), 0))
    assert index.find(other, 0) is None
