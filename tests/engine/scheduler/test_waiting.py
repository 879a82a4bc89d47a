"""Waiting sequences in the order in which they will be served."""

from __future__ import annotations

import pytest

from engine.protocol import Lane
from engine.scheduler.waiting import WaitingLanes, WaitingQueue
from engine.step.sequence import Sequence
from tests.engine.step.sequences import sequence


def waiting(seq_id: int, priority: int = 0, lane: Lane = "interactive", num_prompt: int = 3) -> Sequence:
    return sequence(range(num_prompt), seq_id=seq_id, arrival_index=seq_id, priority=priority, lane=lane, max_tokens=4)


def test_priority_comes_before_arrival_and_a_sequence_that_comes_back_has_its_old_place() -> None:
    queue = WaitingQueue()
    second = waiting(2)
    for seq in (waiting(3), second, waiting(5, priority=-1), waiting(1)):
        queue.push(seq)
    assert [seq.seq_id for seq in queue] == [5, 1, 2, 3]
    queue.remove(second)
    assert [seq.seq_id for seq in queue] == [5, 1, 3]
    queue.push(second)
    assert [seq.seq_id for seq in queue] == [5, 1, 2, 3]


def test_the_head_stays_as_it_was_while_sequences_leave() -> None:
    queue = WaitingQueue()
    for seq_id in range(4):
        queue.push(waiting(seq_id))
    for seq in queue.head(3):
        queue.remove(seq)
    assert [seq.seq_id for seq in queue] == [3]
    assert len(queue.head(9)) == 1


def test_a_queue_counts_the_tokens_of_those_in_it() -> None:
    queue, seq = WaitingQueue(), waiting(1, num_prompt=10)
    seq.num_expected_cached_tokens = 8
    queue.push(seq)
    queue.push(waiting(2, num_prompt=5))
    assert (queue.num_tokens, queue.num_uncached_tokens, queue.max_output_tokens) == (15, 7, 8)
    queue.remove(seq)
    assert (queue.num_tokens, queue.num_uncached_tokens, queue.max_output_tokens) == (5, 5, 4)


def test_lanes_are_apart_and_walked_in_their_order() -> None:
    lanes = WaitingLanes()
    for seq in (waiting(1, lane="batch"), waiting(2, lane="interactive"), waiting(3, lane="long")):
        lanes.push(seq)
    assert [seq.seq_id for seq in lanes] == [2, 3, 1]
    assert (len(lanes), len(lanes.of("long")), lanes.num_tokens) == (3, 1, 9)
    lanes.check_integrity()


def test_a_sequence_that_grows_while_it_waits_is_found_by_the_check() -> None:
    lanes, seq = WaitingLanes(), waiting(1)
    lanes.push(seq)
    seq.token_ids.append(9)
    with pytest.raises(AssertionError, match="tokens are off"):
        lanes.check_integrity()
