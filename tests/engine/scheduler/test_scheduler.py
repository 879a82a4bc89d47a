"""The scheduler's rules, one by one, with the fake model."""

from __future__ import annotations

import pytest

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
