"""A sequence's counts, its order, and where its time went."""

from __future__ import annotations

import pytest

from engine.protocol import AbortState
from engine.step.sequence import SequenceStage, SequenceState, StageClock
from tests.engine.step.sequences import sequence


def test_tokens_are_counted_by_what_is_known_produced_and_computed() -> None:
    seq = sequence([1, 2, 3], [4, 5], max_tokens=7)
    seq.num_computed_tokens, seq.num_expected_cached_tokens = 4, 2
    assert (seq.num_tokens, seq.num_output_tokens, seq.num_uncomputed_tokens) == (5, 2, 1)
    assert (seq.num_expected_uncached_tokens, seq.max_total_tokens) == (3, 10)


def test_smaller_priority_first_then_earlier_arrival() -> None:
    seqs = [sequence([1], seq_id=n, arrival_index=n, priority=priority) for n, priority in enumerate((1, 0, 0, -1))]
    assert [seq.seq_id for seq in sorted(seqs, key=lambda seq: seq.order)] == [3, 1, 2, 0]


def test_a_deadline_counts_from_receipt() -> None:
    assert sequence([1], deadline_s=0.5).deadline_at == 0.5
    assert sequence([1]).deadline_at is None


@pytest.mark.parametrize(
    ("state", "output", "expected"),
    [
        (SequenceState.GRAMMAR, (), "grammar"),
        (SequenceState.WAITING, (), "queued"),
        (SequenceState.PREEMPTED, (5,), "preempted"),
        (SequenceState.RUNNING, (), "prefill"),
        (SequenceState.RUNNING, (5,), "decode"),
    ],
)
def test_an_abort_names_the_state(state: SequenceState, output: tuple[int, ...], expected: AbortState) -> None:
    seq = sequence([1], output)
    seq.state = state
    assert seq.abort_state() == expected


def test_stages_cover_a_life_without_gaps_even_when_a_stage_comes_again() -> None:
    clock = StageClock(10.0)
    for stage, now in (
        (SequenceStage.PREFILL, 11.0),
        (SequenceStage.DECODE, 13.5),
        (SequenceStage.QUEUE, 14.0),
        (SequenceStage.DECODE, 18.0),
        (SequenceStage.DECODE, 19.0),
    ):
        clock.enter(stage, now)
    assert [clock.seconds(stage) for stage in SequenceStage] == [1.0 + 4.0, 2.5, 0.5 + 1.0]


def test_a_clock_that_goes_back_charges_nothing() -> None:
    clock = StageClock(10.0)
    clock.enter(SequenceStage.DECODE, 9.0)
    assert clock.seconds(SequenceStage.QUEUE) == 0.0
