"""Cache hits that a waiting sequence may expect."""

from __future__ import annotations

from engine.kv_cache.block_manager import BlockManager
from engine.kv_cache.expected_prefixes import ExpectedPrefixes
from engine.kv_cache.pending_prefixes import PendingPrefixes
from tests.engine.step.sequences import sequence


def expecting() -> tuple[ExpectedPrefixes, BlockManager, PendingPrefixes]:
    blocks, running = BlockManager(32, 4), PendingPrefixes()
    return ExpectedPrefixes(blocks, running), blocks, running


def test_a_prompt_alone_expects_nothing_and_the_next_of_its_beginning_all_but_the_last_token() -> None:
    expected, _, _ = expecting()
    first, second = sequence(range(13), seq_id=1), sequence([*range(8), 99, 98], seq_id=2)
    expected.enter(first)
    expected.enter(second)
    assert (first.num_expected_cached_tokens, second.num_expected_cached_tokens) == (0, 8)
    third = sequence([*range(8), 99, 98], seq_id=3, cache_salt=b"other")
    expected.enter(third)
    assert third.num_expected_cached_tokens == 0


def test_blocks_that_a_running_sequence_computes_are_expected_too() -> None:
    expected, blocks, running = expecting()
    computing = sequence(range(13), seq_id=1)
    running.reserve(1, [blocks.digest(computing, index) for index in range(2)])
    waiting = sequence(range(13), seq_id=2)
    expected.enter(waiting)
    assert waiting.num_expected_cached_tokens == 8


def test_cached_blocks_are_expected_and_the_chain_ends_at_the_first_gap() -> None:
    expected, blocks, running = expecting()
    cached = sequence(range(13), seq_id=1)
    blocks.allocate(cached, [])
    blocks.append(cached, 13)
    cached.num_computed_tokens = 13
    blocks.register(cached)
    blocks.free(cached)
    other = sequence([*range(4), *range(50, 59)], seq_id=2)
    running.reserve(9, [blocks.digest(other, 2)])
    expected.enter(other)
    assert other.num_expected_cached_tokens == 4


def test_when_nobody_waits_nothing_is_expected() -> None:
    expected, _, _ = expecting()
    seqs = [sequence(range(13), seq_id=seq_id) for seq_id in (1, 2)]
    for seq in seqs:
        expected.enter(seq)
    assert len(expected) > 0
    for seq in seqs:
        expected.leave(seq)
    assert len(expected) == 0
