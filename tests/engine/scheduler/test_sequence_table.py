"""Every sequence is in one place and ends once."""

from __future__ import annotations

import pytest

from engine.scheduler.sequence_table import SequenceTableError
from tests.engine.core.fakes import FakeCore, greedy, make_add


def test_an_id_in_use_is_a_broken_protocol() -> None:
    core = FakeCore()
    core.add(make_add(1, [1]))
    with pytest.raises(SequenceTableError, match="in use"):
        core.add(make_add(1, [1]))


def test_abort_while_queued_frees_at_once() -> None:
    core = FakeCore(max_num_seqs=1)
    core.add(make_add(1, [1]))
    core.add(make_add(2, [2]))
    core.step()
    core.abort(2)
    core.collect()
    assert (core.ends[2].finish_reason, core.ends[2].abort_state) == ("abort", "queued")


def test_abort_in_prefill_frees_its_blocks_at_once_and_keeps_what_is_computed() -> None:
    core = FakeCore(max_num_batched_tokens=8)
    core.add(make_add(1, range(30)))
    core.step()
    core.abort(1)
    core.collect()
    assert core.ends[1].abort_state == "prefill"
    assert core.blocks.num_free == core.num_blocks
    assert core.blocks.num_cached == 2


def test_abort_in_decode_frees_its_blocks_at_once() -> None:
    core = FakeCore()
    core.add(make_add(1, range(10), max_tokens=9))
    core.step()
    core.step()
    core.abort(1)
    core.collect()
    assert core.ends[1].abort_state == "decode"
    assert core.blocks.num_free == core.num_blocks
    assert core.scheduler.take_freed() == [(1, "decode", 0.0)]


def test_abort_while_preempted_ends_it() -> None:
    core = FakeCore(num_blocks=10)
    for seq_id in range(3):
        core.add(make_add(seq_id, [seq_id], max_tokens=16))
    while not core.tally.preemptions:
        core.step()
    core.abort(2)
    core.collect()
    assert core.ends[2].abort_state == "preempted"
    core.run()
    assert core.texts[0] == greedy([0], 16)


def test_an_abort_reports_the_time_from_receipt_to_free_blocks() -> None:
    core = FakeCore()
    core.add(make_add(1, [1], max_tokens=9))
    core.step()
    core.scheduler.abort([1], core.clock() - 0.25, core.clock())
    ((seq_id, state, seconds),) = core.scheduler.take_freed()
    assert (seq_id, state) == (1, "decode")
    assert seconds == pytest.approx(0.25)


def test_aborts_of_unknown_and_ended_sequences_are_ignored() -> None:
    core = FakeCore()
    core.add(make_add(1, [1], max_tokens=1))
    core.run()
    core.abort(1, 77)
    assert core.scheduler.take_outputs() == []
    assert core.scheduler.take_freed() == []


def test_a_sequence_aborted_in_flight_gets_no_output_of_that_step() -> None:
    core = FakeCore()
    core.add(make_add(1, [1], max_tokens=9))
    core.step()
    batch = core.scheduler.schedule(core.clock())
    output = core.model.execute(batch)
    core.abort(1)
    core.scheduler.update_from_output(batch, output, core.clock())
    core.collect()
    assert len(core.texts[1]) == 1


def test_a_passed_deadline_ends_waiting_and_running_sequences() -> None:
    core = FakeCore(max_num_seqs=1)
    core.add(make_add(1, [1], max_tokens=60, deadline_s=0.095))
    core.add(make_add(2, [2], deadline_s=0.05))
    core.run()
    for seq_id in (1, 2):
        assert core.ends[seq_id].finish_reason == "abort"
        assert "deadline has passed" in (core.ends[seq_id].error or "")
    assert len(core.texts[1]) == 10


def test_stage_times_cover_the_whole_life() -> None:
    core = FakeCore(max_num_seqs=1, max_num_batched_tokens=4)
    core.add(make_add(1, [1], max_tokens=3))
    core.add(make_add(2, range(8), max_tokens=3))
    core.run()
    stages = core.ends[2].stages
    assert stages is not None
    assert stages.queue_s == pytest.approx(0.03)
    assert stages.prefill_s == pytest.approx(0.02)
    assert stages.decode_s == pytest.approx(0.02)
    assert stages.num_prefill_chunks == 2
