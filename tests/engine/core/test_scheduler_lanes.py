"""Lanes in the scheduler: long prompts do not hold up short ones, batch goes on, streams keep their pace."""

from __future__ import annotations

from itertools import count

import pytest

from engine.forecast.step_time import StepShape
from engine.protocol import Lane
from engine.step.scheduler_output import SchedulerOutput
from tests.engine.core.fakes import FakeCore, greedy, make_add


def tokens_of(batch: SchedulerOutput) -> dict[int, int]:
    """Tokens of each sequence in a step."""
    return {chunk.seq.seq_id: chunk.num_tokens for chunk in batch.chunks}


def roomy(*, max_num_seqs: int = 8, num_blocks: int = 512) -> FakeCore:
    """Room for long prompts."""
    return FakeCore(num_blocks=num_blocks, max_model_len=1024, max_num_batched_tokens=48, max_num_seqs=max_num_seqs)


def add(core: FakeCore, seq_id: int, num_prompt: int, lane: Lane, max_tokens: int = 4) -> None:
    """A prompt that shares nothing with the others."""
    prompt = [(seq_id * 31 + index * 7) % 97 for index in range(num_prompt)]
    core.add(make_add(seq_id, prompt, max_tokens, lane=lane))


def test_a_short_prompt_has_its_chunk_in_the_step_after_it_came() -> None:
    core = roomy()
    add(core, 1, 400, "long")
    assert tokens_of(core.step()) == {1: 48}
    add(core, 2, 20, "interactive")
    assert tokens_of(core.step()) == {1: 28, 2: 20}
    core.run()
    assert core.ends[1].stages is not None
    assert core.ends[1].stages.num_prefill_chunks > 8


def test_batch_goes_on_while_short_prompts_keep_coming() -> None:
    core = roomy(max_num_seqs=16)
    add(core, 1, 200, "batch")
    ids = count(2)
    for _ in range(100):
        for _ in range(4):
            add(core, next(ids), 30, "interactive", max_tokens=1)
        core.step()
        if 1 in core.ends:
            break
    assert 1 in core.ends
    core.run()


def test_a_lane_alone_has_the_whole_step() -> None:
    core = roomy()
    add(core, 1, 100, "batch")
    assert tokens_of(core.step()) == {1: 48}


def test_what_one_lane_leaves_the_others_use() -> None:
    core = roomy()
    add(core, 1, 300, "long")
    add(core, 2, 300, "batch")
    add(core, 3, 6, "interactive")
    found = tokens_of(core.step())
    assert found[3] == 6
    assert sum(found.values()) == 48
    assert found[1] > found[2] > 0


def test_the_share_of_a_prompt_that_waits_for_its_prefix_is_not_lost() -> None:
    core = roomy()
    for seq_id in (1, 2):
        core.add(make_add(seq_id, range(90), 2, lane="interactive"))
    add(core, 3, 300, "long")
    core.step()
    assert sum(tokens_of(core.step()).values()) == 48


def test_rows_are_stored_for_short_prompts() -> None:
    core = roomy(max_num_seqs=16, num_blocks=2000)
    for seq_id in range(20):
        add(core, seq_id, 3, "batch", max_tokens=60)
    for _ in range(4):
        core.step()
    assert core.scheduler.num_running == 15
    add(core, 99, 3, "interactive", max_tokens=1)
    core.step()
    assert 99 in core.ends
    core.run()


def test_batch_is_preempted_first() -> None:
    core = FakeCore(num_blocks=10)
    core.add(make_add(0, [0], 16, lane="batch"))
    for seq_id in (1, 2):
        core.add(make_add(seq_id, [seq_id], 16))
    core.run()
    stages = core.ends[0].stages
    assert stages is not None
    assert stages.num_preemptions > 0
    assert core.texts == {seq_id: greedy([seq_id], 16) for seq_id in range(3)}


def test_short_prompts_pass_a_long_one_that_lacks_blocks_but_not_for_ever() -> None:
    core = FakeCore(num_blocks=24, max_model_len=96, max_num_seqs=4)
    add(core, 0, 40, "long", max_tokens=8)
    ids = count(1)
    core.step()
    add(core, 1000, 70, "long", max_tokens=8)  # cannot start beside the first
    num_passed = 0
    for _ in range(200):
        if core.scheduler.num_waiting < 3:
            add(core, next(ids), 12, "interactive", max_tokens=6)
        core.step()
        if 1000 in core.texts:
            break
        num_passed = len([seq_id for seq_id in core.ends if 0 < seq_id < 1000])
    assert 1000 in core.texts
    assert num_passed > 0
    core.run()


def taught(core: FakeCore) -> None:
    """A machine of 2 ms a step and 0.05 ms a prompt token."""
    for num_context in (5, 100, 400):
        for num_tokens in (0, 8, 16, 32, 48):
            shape = StepShape(1, num_tokens, num_context, num_tokens * num_context)
            core.step_time.observe(shape, 0.002 + 5e-5 * num_tokens)


@pytest.mark.parametrize(("lane", "num_tokens"), [("long", 30), ("interactive", 47)])
def test_chunks_beside_a_stream_keep_its_pace(lane: Lane, num_tokens: int) -> None:
    core = roomy()
    add(core, 1, 4, "interactive", max_tokens=40)
    core.step()
    taught(core)
    add(core, 2, 300, lane)
    found = tokens_of(core.step())
    assert found[1] == 1
    assert found[2] == pytest.approx(num_tokens, abs=3)


def test_the_step_that_reads_a_short_prompt_is_no_longer_for_the_long_ones_that_wait() -> None:
    core = roomy()
    add(core, 1, 4, "interactive", max_tokens=40)
    core.step()
    taught(core)
    add(core, 2, 300, "long")
    add(core, 3, 20, "interactive")
    found = tokens_of(core.step())
    assert found[3] == 20
    assert found[2] + found[3] == pytest.approx(30, abs=3)  # as many as long ones alone would have had


def test_long_prompts_keep_their_part_of_a_step_beside_many_short_ones() -> None:
    core = roomy()
    add(core, 1, 4, "interactive", max_tokens=40)
    core.step()
    taught(core)
    add(core, 2, 300, "long")
    for seq_id in (3, 4, 5):
        add(core, seq_id, 30, "interactive")
    found = tokens_of(core.step())
    assert found[2] == pytest.approx(30 * 3 / 11, abs=2)
    assert sum(found.values()) == pytest.approx(48, abs=2)


def test_chunks_beside_batch_rows_take_the_whole_step() -> None:
    core = roomy()
    add(core, 1, 4, "batch", max_tokens=40)
    core.step()
    taught(core)
    add(core, 2, 300, "long")
    assert tokens_of(core.step()) == {1: 1, 2: 47}


def test_several_long_prompts_may_lengthen_a_step_by_twice_as_much_as_one() -> None:
    core = FakeCore(num_blocks=512, max_model_len=1024, max_num_batched_tokens=48, prefill_slack_ratio=1.3)
    add(core, 1, 4, "interactive", max_tokens=40)
    core.step()
    taught(core)
    add(core, 2, 300, "long")
    assert tokens_of(core.step())[2] == pytest.approx(12, abs=2)
    assert tokens_of(core.step())[2] == pytest.approx(12, abs=2)
    add(core, 3, 300, "batch")
    found = tokens_of(core.step())
    assert found[1] == 1
    assert found.get(2, 0) + found.get(3, 0) == pytest.approx(24, abs=2)
