"""Blocks of windowed layers: held while a window sees them, reused behind it, and found again by equal prefixes."""

from __future__ import annotations

import random

import pytest

from engine.kv_cache.block_manager import BlockManager
from engine.kv_cache.window_blocks import WindowBlocks, window_pool_blocks
from engine.step.scheduler_output import ScheduledChunk
from engine.step.sequence import Sequence
from tests.engine.kv_cache.test_block_manager import make_sequence

BLOCK = 4
WINDOW = 10
NUM_BLOCKS = 64


def manager(num_places: int) -> tuple[BlockManager, WindowBlocks]:
    windows = WindowBlocks(NUM_BLOCKS, num_places, window=WINDOW, block_size=BLOCK)
    return BlockManager(NUM_BLOCKS, BLOCK, windows=windows), windows


def compute(blocks: BlockManager, seq: Sequence, num_tokens: int) -> None:
    """A step of the next tokens of a sequence."""
    start = seq.num_computed_tokens
    blocks.append(seq, start + num_tokens)
    blocks.hold_windows([ScheduledChunk(seq, start, num_tokens, samples=False)])
    seq.num_computed_tokens = start + num_tokens
    blocks.register(seq)


def begin(blocks: BlockManager, seq: Sequence) -> int:
    """The tokens found in the prefix cache."""
    prefix = blocks.find_prefix(seq)
    blocks.allocate(seq, prefix)
    return len(prefix) * BLOCK


def test_a_long_sequence_holds_its_window_alone() -> None:
    blocks, windows = manager(8)
    seq = make_sequence(0, list(range(80)))
    begin(blocks, seq)
    for _ in range(20):
        compute(blocks, seq, 4)
        # Ten tokens that the next query sees lie in up to four blocks.
        assert windows.num_held <= 4
        blocks.check_integrity([seq])
    places = [int(windows.places[block_id]) for block_id in seq.block_table[seq.held_start : seq.held_end]]
    assert len(set(places)) == len(places)
    blocks.free(seq)
    assert windows.num_held == 0
    blocks.check_integrity([])


def test_a_prefix_is_found_again_if_the_window_at_its_end_is_still_there() -> None:
    blocks, _ = manager(8)
    first = make_sequence(0, list(range(40)))
    begin(blocks, first)
    for _ in range(10):
        compute(blocks, first, 4)
    blocks.free(first)

    # All 40 tokens are known: full layers have all of them, windowed ones the last 32.
    again = make_sequence(1, [*range(40), 99])
    assert begin(blocks, again) == 40
    blocks.free(again)
    # The window at the end of 16 tokens has lost its place to later tokens.
    shorter = make_sequence(2, [*range(16), 99])
    assert begin(blocks, shorter) < 16
    blocks.free(shorter)
    blocks.check_integrity([])


def test_a_prefix_that_was_computed_again_is_found_in_its_new_blocks() -> None:
    blocks, _ = manager(6)
    for number, first_token in enumerate((0, 100, 0)):  # the second one takes the places of the first
        seq = make_sequence(number, list(range(first_token, first_token + 24)))
        assert begin(blocks, seq) == 0
        for _ in range(6):
            compute(blocks, seq, 4)
        blocks.free(seq)
        blocks.check_integrity([])

    assert begin(blocks, make_sequence(3, [*range(24), 99])) == 24


def test_the_prefix_of_a_sequence_is_not_given_away_before_its_step() -> None:
    blocks, windows = manager(6)
    first = make_sequence(0, list(range(16)))
    begin(blocks, first)
    for _ in range(4):
        compute(blocks, first, 4)
    blocks.free(first)
    second, other = make_sequence(1, [*range(16), 99]), make_sequence(2, list(range(100, 110)))
    assert begin(blocks, second) == 16
    retained = [int(windows.places[block_id]) for block_id in second.block_table[second.held_start : 4]]

    begin(blocks, other)
    compute(blocks, other, 10)

    assert [int(windows.places[block_id]) for block_id in second.block_table[second.held_start : 4]] == retained
    assert not set(retained) & {int(windows.places[block_id]) for block_id in other.block_table}
    blocks.check_integrity([second, other])


@pytest.mark.parametrize("seed", range(5))
def test_the_pool_suffices_for_whatever_sequences_run(seed: int) -> None:
    """Prompts in chunks, tokens one by one, shared prefixes, ends at any time."""
    rng = random.Random(seed)
    num_seqs, budget, reach = 4, 12, 5
    num_places = window_pool_blocks(
        WINDOW, BLOCK, max_num_seqs=num_seqs, max_num_batched_tokens=budget, max_reach=reach
    )
    windows = WindowBlocks(256, num_places, window=WINDOW, block_size=BLOCK)
    blocks = BlockManager(256, BLOCK, windows=windows)
    content: dict[int, tuple[int, int]] = {}
    running: list[Sequence] = []
    for number in range(400):
        if len(running) < num_seqs:
            shared = rng.choice([0, 8, 20, 32])
            tokens = [*range(shared), *(1000 + 100 * number + index for index in range(rng.randint(1, 40)))]
            seq = make_sequence(number, tokens)
            begin(blocks, seq)
            running.append(seq)
        left, chunks = budget, []
        for seq in running:
            count = min(left, len(seq.token_ids) - seq.num_computed_tokens)
            if count:
                left -= count
                if seq.num_computed_tokens + count == len(seq.token_ids):
                    blocks.append(seq, len(seq.token_ids) + rng.randint(0, reach))
                chunks.append(ScheduledChunk(seq, seq.num_computed_tokens, count, samples=False))
        blocks.hold_windows(chunks)
        for chunk in chunks:
            for position in range(chunk.start, chunk.end):
                place = int(windows.places[chunk.seq.block_table[position // BLOCK]])
                content[place * BLOCK + position % BLOCK] = (chunk.seq.token_ids[position], position)
        for chunk in chunks:
            for query in range(chunk.start, chunk.end):
                for position in range(max(0, query - WINDOW + 1), query + 1):
                    place = int(windows.places[chunk.seq.block_table[position // BLOCK]])
                    found = content[place * BLOCK + position % BLOCK]
                    assert found == (chunk.seq.token_ids[position], position)
        for chunk in chunks:
            chunk.seq.num_computed_tokens = chunk.end
            blocks.register(chunk.seq)
            if chunk.end == len(chunk.seq.token_ids):
                chunk.seq.token_ids.append(5000 + number)
            blocks.shrink(chunk.seq)
        if rng.random() < 0.2:
            blocks.free(running.pop(rng.randrange(len(running))))
        blocks.check_integrity(running)
