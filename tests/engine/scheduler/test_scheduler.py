"""The scheduler's rules, one by one, with the fake model."""

from __future__ import annotations

import pytest

from engine.forecast.step_time import StepShape
from engine.scheduler.sequence_table import SequenceTableError
from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import SequenceResult
from tests.engine.core.fakes import FakeCore, greedy, make_add, next_token


def num_scheduled_tokens(batch: SchedulerOutput) -> dict[int, int]:
    """Tokens each sequence computes in a step."""
    return {chunk.seq.seq_id: chunk.num_tokens for chunk in batch.chunks}


def test_a_sequence_ends_with_length_and_the_right_tokens() -> None:
    core = FakeCore()
    core.add(make_add(1, [5, 6, 7], max_tokens=6))
    core.run()
    assert core.texts[1] == greedy([5, 6, 7], 6)
    assert core.ends[1].finish_reason == "length"


def test_a_stop_token_ends_the_sequence_and_is_reported() -> None:
    answer = greedy([5, 6, 7], 6)
    core = FakeCore()
    core.add(make_add(1, [5, 6, 7], max_tokens=6, stop_token_ids=(answer[2],)))
    core.run()
    assert core.texts[1] == answer[:3]
    assert core.ends[1].finish_reason == "stop"


def test_a_stop_token_before_min_tokens_does_not_end_the_sequence() -> None:
    answer = greedy([5, 6, 7], 6)
    core = FakeCore()
    core.add(make_add(1, [5, 6, 7], max_tokens=6, stop_token_ids=(answer[2],), min_tokens=5))
    core.run()
    assert core.texts[1] == answer


def test_decode_and_prompt_chunks_share_one_step() -> None:
    core = FakeCore(max_num_batched_tokens=8)
    core.add(make_add(1, [1, 2, 3], max_tokens=10))
    core.step()
    core.add(make_add(2, range(20), max_tokens=2))
    assert num_scheduled_tokens(core.step()) == {1: 1, 2: 7}
    assert num_scheduled_tokens(core.step()) == {1: 1, 2: 7}
    assert num_scheduled_tokens(core.step()) == {1: 1, 2: 6}
    assert core.texts[2] == greedy(range(20), 1)


@pytest.mark.parametrize("budget", [1, 3, 5, 64])
def test_chunked_prompts_give_the_same_tokens_as_whole_ones(budget: int) -> None:
    core = FakeCore(max_num_batched_tokens=budget)
    core.add(make_add(1, range(30), max_tokens=5))
    core.run()
    assert core.texts[1] == greedy(range(30), 5)


def test_decoding_rows_never_starve_when_the_budget_is_smaller_than_the_rows() -> None:
    core = FakeCore(max_num_batched_tokens=2, max_num_seqs=8)
    for seq_id in range(4):
        core.add(make_add(seq_id, [seq_id], max_tokens=4))
    core.step()
    core.step()
    assert num_scheduled_tokens(core.step()) == {0: 1, 1: 1}


def test_waiting_sequences_start_in_order_of_priority_then_arrival() -> None:
    core = FakeCore(max_num_seqs=1)
    for seq_id, priority in ((1, 0), (2, 1), (3, 0), (4, -1)):
        core.add(make_add(seq_id, [seq_id], max_tokens=2, priority=priority))
    core.run()
    assert list(core.ends) == [4, 1, 3, 2]


def test_a_request_that_fits_one_sequence_never_is_refused_at_once() -> None:
    core = FakeCore(max_model_len=16)
    core.add(make_add(1, range(10), max_tokens=7))
    core.collect()
    assert core.ends[1].finish_reason == "error"
    assert "limit of 16" in (core.ends[1].error or "")
    assert not core.scheduler.has_work


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "message"),
    [([], 1, "empty"), ([1], 0, "max_tokens"), ([97], 1, "token id 97"), ([-1], 1, "token id -1")],
)
def test_requests_that_make_no_sense_are_refused(prompt: list[int], max_tokens: int, message: str) -> None:
    core = FakeCore()
    core.add(make_add(1, prompt, max_tokens))
    core.collect()
    assert message in (core.ends[1].error or "")


def test_a_full_queue_refuses() -> None:
    core = FakeCore(max_waiting=2)
    for seq_id in range(3):
        core.add(make_add(seq_id, [1]))
    core.collect()
    assert list(core.ends) == [2]
    assert "queue is full" in (core.ends[2].error or "")


def test_an_id_in_use_is_a_broken_protocol() -> None:
    core = FakeCore()
    core.add(make_add(1, [1]))
    with pytest.raises(SequenceTableError, match="in use"):
        core.add(make_add(1, [1]))


def test_a_request_that_does_not_fit_now_waits_for_blocks_and_then_runs() -> None:
    core = FakeCore(num_blocks=8)
    core.add(make_add(1, range(20), max_tokens=4))
    core.add(make_add(2, range(40, 60), max_tokens=4))
    core.step()
    assert (core.scheduler.num_running, core.scheduler.num_waiting) == (1, 1)
    assert core.scheduler.wait_forecast.is_short_of_blocks
    core.run()
    assert core.tally.preemptions == 0
    assert core.texts[2] == greedy(range(40, 60), 4)


def test_small_requests_do_not_overtake_one_that_waits_for_blocks() -> None:
    core = FakeCore(num_blocks=8)
    core.add(make_add(1, range(20), max_tokens=4))
    core.add(make_add(2, range(40, 60), max_tokens=4))
    core.add(make_add(3, [1], max_tokens=1))
    core.run()
    assert core.ends[3].stages is not None
    assert core.ends[3].stages.queue_s >= 0.03


def test_preemption_takes_the_newest_and_its_tokens_come_out_the_same() -> None:
    core = FakeCore(num_blocks=10)
    for seq_id in range(3):
        core.add(make_add(seq_id, [seq_id], max_tokens=16))
    core.run()
    assert core.tally.preemptions > 0
    for seq_id in range(3):
        assert core.texts[seq_id] == greedy([seq_id], 16)
    preempted = [seq_id for seq_id, end in core.ends.items() if end.stages and end.stages.num_preemptions]
    assert 0 not in preempted
    assert 2 in preempted


def test_preemption_spares_the_more_important() -> None:
    core = FakeCore(num_blocks=10)
    for seq_id, priority in ((0, 1), (1, 0), (2, 0)):
        core.add(make_add(seq_id, [seq_id], max_tokens=16, priority=priority))
    core.run()
    stages = core.ends[0].stages
    assert stages is not None
    assert stages.num_preemptions > 0


def test_an_equal_prompt_is_computed_once() -> None:
    core = FakeCore()
    core.add(make_add(1, range(17), max_tokens=2))
    core.run()
    computed = core.model.num_computed_tokens
    core.add(make_add(2, range(17), max_tokens=2))
    core.run()
    assert core.model.num_computed_tokens - computed == 2  # the prompt's last token, and the first output's
    stages = core.ends[2].stages
    assert stages is not None
    assert stages.num_cached_tokens == 16
    assert core.texts[1] == core.texts[2]


def test_one_token_of_a_fully_cached_prompt_is_computed() -> None:
    core = FakeCore()
    for seq_id in (1, 2):
        computed = core.model.num_computed_tokens
        core.add(make_add(seq_id, range(16), max_tokens=2))
        core.run()
    assert core.model.num_computed_tokens - computed == 2  # the prompt's last token, and the first output's
    stages = core.ends[2].stages
    assert stages is not None
    assert stages.num_cached_tokens == 15
    assert core.texts[1] == core.texts[2]


def test_different_salts_share_nothing() -> None:
    core = FakeCore()
    for seq_id, salt in ((1, b"a"), (2, b"b")):
        core.add(make_add(seq_id, range(16), max_tokens=2, salt=salt))
        core.run()
    stages = core.ends[2].stages
    assert stages is not None
    assert stages.num_cached_tokens == 0


def test_without_a_prefix_cache_nothing_is_shared() -> None:
    core = FakeCore(enable_prefix_cache=False)
    for seq_id in (1, 2):
        core.add(make_add(seq_id, range(16), max_tokens=2))
        core.run()
    assert core.tally.prefix_hit_tokens == core.tally.prefix_query_tokens == 0
    assert core.blocks.num_cached == 0


def test_a_burst_of_one_prompt_waits_for_the_first_and_reuses_it() -> None:
    core = FakeCore(max_num_seqs=8, max_num_batched_tokens=64, num_blocks=64)
    for seq_id in range(6):
        core.add(make_add(seq_id, range(17), max_tokens=3))
    assert num_scheduled_tokens(core.step()) == {0: 17}
    assert num_scheduled_tokens(core.step()) == {0: 1} | dict.fromkeys(range(1, 6), 1)
    core.run()
    assert core.tally.prefix_hit_tokens == 5 * 16
    assert {tuple(text) for text in core.texts.values()} == {tuple(greedy(range(17), 3))}


def test_others_pass_a_sequence_that_waits_for_a_prefix() -> None:
    core = FakeCore(max_num_batched_tokens=64)
    core.add(make_add(1, range(17)))
    core.add(make_add(2, range(17)))
    core.add(make_add(3, [9, 9]))
    assert num_scheduled_tokens(core.step()) == {1: 17, 3: 2}


def test_an_abort_of_the_one_computing_a_prefix_lets_the_next_compute_it() -> None:
    core = FakeCore(max_num_batched_tokens=8)
    core.add(make_add(1, range(17)))
    core.add(make_add(2, range(17)))
    core.step()
    core.abort(1)
    assert num_scheduled_tokens(core.step()) == {2: 8}
    assert core.tally.prefix_hit_tokens == 8  # what the first had computed before it was aborted
    core.run()
    assert core.texts[2] == greedy(range(17), 4)


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


def test_what_cannot_reach_its_first_token_in_time_is_not_started() -> None:
    core = FakeCore()
    for _ in range(20):
        core.step_time.observe(StepShape(0, 32, 32), 0.2)
    core.add(make_add(1, range(30), deadline_s=0.1))
    core.run()
    assert "before the first token" in (core.ends[1].error or "")
    assert core.model.num_computed_tokens == 0


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


def test_counters_count_prompts_outputs_and_cache_hits() -> None:
    core = FakeCore()
    for seq_id in (1, 2):
        core.add(make_add(seq_id, range(9), max_tokens=3))
        core.run()
    counters = core.tally.snapshot()
    assert (counters.prompt_tokens, counters.generation_tokens) == (18, 6)
    assert (counters.prefix_query_tokens, counters.prefix_hit_tokens) == (18, 8)


def test_a_row_error_ends_only_that_sequence() -> None:
    core = FakeCore()
    core.add(make_add(1, [1], max_tokens=3))
    core.add(make_add(2, [2], max_tokens=3))
    batch = core.scheduler.schedule(core.clock())
    output = core.model.execute(batch)
    output.results[0] = SequenceResult([], error="bad row")
    core.scheduler.update_from_output(batch, output, core.clock())
    core.run()
    assert core.ends[1].error == "bad row"
    assert core.texts[2] == greedy([2], 3)


def test_the_fake_model_depends_on_every_token() -> None:
    assert len({next_token([1, 2, last]) for last in range(20)}) > 10


def test_a_sequence_starts_only_beside_what_the_others_are_expected_to_need() -> None:
    core = FakeCore(num_blocks=12)
    core.forecast.observe("interactive", 16)
    for seq_id in range(3):
        core.add(make_add(seq_id, [seq_id] * 4, max_tokens=16))
    core.step()
    # Each will take 5 blocks: two fit with one to spare, though the third's prompt alone would fit now.
    assert (core.scheduler.num_running, core.scheduler.num_waiting) == (2, 1)
    core.run()
    assert core.tally.preemptions == 0
