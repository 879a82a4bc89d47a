"""Slots of recurrent states are read where they were written, saved at block borders, and never lost or leaked."""

from __future__ import annotations

import random

import pytest

from engine.kv_cache.state_slots import StateRequest, StateSlots

BLOCK = 4


def test_a_step_reads_what_the_step_before_wrote() -> None:
    states = StateSlots(2, BLOCK)
    (first,) = states.plan([StateRequest(1, [7, 8], 0, 3)])
    (again,) = states.plan([StateRequest(1, [7, 8], 0, 3)])
    (second,) = states.plan([StateRequest(1, [7, 8], 3, 4)])

    assert first.read is None
    assert again.read is None
    assert second.read == again.write
    assert second.write != second.read


def test_a_prompt_saves_its_last_border_below_its_end_and_where_others_began_alike() -> None:
    states = StateSlots(2, BLOCK)
    states.begin(1, [], num_known=1)
    (use,) = states.plan([StateRequest(1, [5, 6, 7], 0, 12)])

    assert [count for count, _ in use.saved] == [4, 8]
    assert states.num_reusable([5, 6, 7], 12) == 2
    assert states.num_reusable([5, 6, 7], 8) == 1
    assert states.num_reusable([5], 4) == 0


def test_a_sequence_begins_behind_a_saved_state() -> None:
    states = StateSlots(2, BLOCK)
    (use,) = states.plan([StateRequest(1, [5, 6], 0, 6)])
    states.begin(2, [5], num_known=1)
    (behind,) = states.plan([StateRequest(2, [5, 9], 4, 6)])

    assert use.saved == ((4, behind.read),)


def test_a_lost_state_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="sequence 3: the state behind token 4 is lost"):
        StateSlots(2, BLOCK).plan([StateRequest(3, [1], 4, 5)])


def test_a_failed_step_takes_back_what_it_saved() -> None:
    states = StateSlots(2, BLOCK)
    states.plan([StateRequest(1, [5, 6], 0, 4)])
    states.plan([StateRequest(1, [5, 6], 0, 3)])

    assert states.num_reusable([5], 8) == 0
    states.check_integrity([1])


def test_a_block_of_equal_content_shares_the_state() -> None:
    states = StateSlots(2, BLOCK)
    states.plan([StateRequest(1, [5, 6], 0, 6)])
    states.share(5, 9)
    states.drop(5)

    assert states.num_reusable([9], 6) == 1
    states.check_integrity([1])


def test_a_state_leaves_with_its_block() -> None:
    states = StateSlots(2, BLOCK)
    states.plan([StateRequest(1, [5, 6], 0, 6)])
    states.end(1, [5, 6], 6)
    states.drop(5)
    states.drop(6)

    assert states.num_reusable([5], 6) == 0
    assert states.num_free == states.num_slots
    states.check_integrity([])


@pytest.mark.parametrize("seed", range(20))
def test_slots_are_never_leaked_or_written_twice(seed: int) -> None:
    rng = random.Random(seed)
    states = StateSlots(3, BLOCK)
    running: dict[int, tuple[list[int], int]] = {}
    num_blocks = 0
    for seq_id in range(200):
        while len(running) >= 3 or (running and rng.random() < 0.6):
            requests, ends = [], {}
            for running_id, (table, start) in running.items():
                ends[running_id] = start + rng.choice([1, 1, 3, 4, 9])
                while len(table) * BLOCK < ends[running_id]:
                    table.append(num_blocks)
                    num_blocks += 1
                requests.append(StateRequest(running_id, table, start, ends[running_id]))
            uses = states.plan(requests)
            written = [slot for use in uses for slot in (use.write, *(slot for _, slot in use.saved))]
            assert len(set(written)) == len(written)
            assert not {use.read for use in uses} & set(written)
            running = {running_id: (table, ends[running_id]) for running_id, (table, _) in running.items()}
            states.check_integrity(running)
            if rng.random() < 0.5:
                ended = rng.choice(list(running))
                states.end(ended, *running.pop(ended))
        if num_blocks and rng.random() < 0.3:
            states.drop(rng.randrange(num_blocks))
        states.begin(seq_id, [], num_known=rng.choice([0, 1, 2]))
        running[seq_id] = ([], 0)
    for running_id, (table, num_computed) in running.items():
        states.end(running_id, table, num_computed)
    for block_id in range(num_blocks):
        states.drop(block_id)
    assert states.num_free == states.num_slots
