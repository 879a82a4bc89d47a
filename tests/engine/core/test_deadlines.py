"""Deadlines in the core: refused at arrival when hopeless, dropped in the queue, aborted in the batch; one end each."""

from __future__ import annotations

from random import Random

import pytest

from engine.forecast.step_time import StepShape
from tests.engine.core.fakes import FakeCore, make_add
from tests.engine.core.modelled_engine import ModelledEngine, Request, conversation


def taught(core: FakeCore, seconds_per_token: float = 0.001) -> FakeCore:
    """A machine of 10 ms a step and so much a prompt token."""
    for num_context in (5, 100, 400):
        for num_tokens in (0, 8, 16, 32):
            core.step_time.observe(StepShape(1, num_tokens, num_context), 0.01 + seconds_per_token * num_tokens)
    return core


def test_a_prompt_too_long_for_its_deadline_is_refused_as_it_arrives() -> None:
    core = taught(FakeCore())
    core.add(make_add(1, range(60), deadline_s=0.05))
    core.collect()
    end = core.ends[1]
    assert (end.finish_reason, end.abort_state) == ("abort", "queued")
    assert "before the first token" in (end.error or "")
    assert core.scheduler.take_freed() == []  # never taken in, so no abort
    assert not core.scheduler.has_work


def test_the_queue_ahead_counts() -> None:
    core = taught(FakeCore(max_num_seqs=1))
    core.add(make_add(1, [1], max_tokens=40))
    core.step()
    core.add(make_add(2, [2], deadline_s=0.02))
    core.add(make_add(3, [3], deadline_s=10.0))
    core.collect()
    assert 2 in core.ends
    core.run()
    assert core.ends[3].finish_reason == "length"


def test_what_is_cached_needs_no_time() -> None:
    core = taught(FakeCore())
    core.add(make_add(1, range(60), max_tokens=1))
    core.run()
    core.add(make_add(2, range(60), max_tokens=1, deadline_s=0.05))
    core.run()
    assert core.ends[2].finish_reason == "length"


def test_what_a_running_sequence_computes_needs_no_time_either() -> None:
    core = taught(FakeCore(max_num_batched_tokens=64))
    core.add(make_add(1, range(60), max_tokens=4))
    core.scheduler.schedule(core.clock())
    core.add(make_add(2, range(60), max_tokens=1, deadline_s=0.2))
    core.collect()
    assert 2 not in core.ends


def test_expired_sequences_are_counted_as_aborts_of_the_state_they_were_in() -> None:
    core = FakeCore(max_num_seqs=2, num_blocks=14, max_num_batched_tokens=8)
    core.add(make_add(1, [1], max_tokens=40, deadline_s=0.05))
    core.add(make_add(2, range(40), max_tokens=4, deadline_s=0.035))
    core.add(make_add(3, [3], deadline_s=0.025))
    freed = []
    while core.scheduler.has_work:
        core.step()
        freed += core.scheduler.take_freed()
    assert {seq_id: state for seq_id, state, _ in freed} == {1: "decode", 2: "prefill", 3: "queued"}
    assert all(0.0 <= late_s <= 0.01 for _, _, late_s in freed)
    assert {core.ends[seq_id].abort_state for seq_id in (1, 2, 3)} == {"decode", "prefill", "queued"}


@pytest.mark.parametrize("per_second", [10.0, 40.0])
def test_under_load_every_request_has_one_end_and_none_starts_after_its_deadline(per_second: float) -> None:
    rng = Random(3)
    requests = [
        Request(
            at=request.at,
            prompt=request.prompt,
            num_output_tokens=request.num_output_tokens,
            lane=request.lane,
            deadline_s=rng.choice((0.3, 1.0, 3.0)),
        )
        for request in conversation(rng, per_second=per_second, seconds=10.0)
    ]
    engine = ModelledEngine()
    waits = engine.run(requests)
    assert len(waits) + len(engine.errors) == len(requests)
    assert all(wait.real_s <= 3.0 for wait in waits)
    num_late = sum("has passed" in error for error in engine.errors.values())
    num_refused = sum("before the first token" in error for error in engine.errors.values())
    assert num_late + num_refused == len(engine.errors)
    if per_second == 40.0:
        assert num_refused > len(requests) / 10
