"""The modelled engine takes exactly as long as its shape states."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.engines.modelled_engine import EngineModel, EngineShape, Job, lane_work

SHAPE = EngineShape(max_num_seqs=2, step_fixed_ms=10.0, sequence_us=1000.0, prefill_us=100.0, step_tokens=50)


def run(model: EngineModel, jobs: list[Job]) -> dict[int, float]:
    """When each job (by its place in `jobs`) got its last token, from 0; all arrive at 0."""
    for job in jobs:
        model.add(job)
    now, done = 0.0, {}
    while (step := model.begin()) is not None:
        now += step.seconds
        for job in model.finish(step):
            if job.is_done:
                done[jobs.index(job)] = now
    return done


def test_a_prompt_is_read_in_chunks_and_its_last_chunk_makes_the_first_token() -> None:
    job = Job(prompt_tokens=80, output_tokens=3)
    done = run(EngineModel(SHAPE), [job])
    chunks_s = (10 + 5) / 1e3 + (10 + 3) / 1e3
    decode_s = 2 * (10 + 1) / 1e3
    assert done[0] == pytest.approx(chunks_s + decode_s)


def test_who_finds_no_row_waits_for_one() -> None:
    model = EngineModel(SHAPE)
    jobs = [Job(prompt_tokens=10, output_tokens=output) for output in (5, 2, 1)]
    done = run(model, jobs)
    assert done[1] < done[2] < done[0]
    assert (model.num_running, model.num_waiting) == (0, 0)


def test_a_brown_out_makes_every_step_longer() -> None:
    fast = run(EngineModel(SHAPE), [Job(prompt_tokens=80, output_tokens=3)])
    slow = run(EngineModel(SHAPE, slowdown=10.0), [Job(prompt_tokens=80, output_tokens=3)])
    assert slow[0] == pytest.approx(10 * fast[0])


def test_a_job_removed_during_a_step_gets_no_token_of_it() -> None:
    model = EngineModel(SHAPE)
    gone, stays = Job(prompt_tokens=5, output_tokens=4), Job(prompt_tokens=5, output_tokens=4)
    model.add(gone)
    model.add(stays)
    step = model.begin()
    assert step is not None
    model.remove(gone)
    assert model.finish(step) == [stays]
    assert model.num_made == 1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 200), st.integers(1, 20)), max_size=12))
def test_every_job_gets_each_of_its_tokens_once(sizes: list[tuple[int, int]]) -> None:
    model = EngineModel(SHAPE)
    jobs = [Job(prompt_tokens=prompt, output_tokens=output) for prompt, output in sizes]
    assert len(run(model, jobs)) == len(jobs)
    assert model.num_read == sum(prompt for prompt, _ in sizes)
    assert model.num_made == sum(output for _, output in sizes)


def test_an_engine_states_of_each_lane_what_waits_in_it() -> None:
    short, long = lane_work(EngineShape(), 0, 0, (1000, 4000), 1.0)
    assert (short.wait_s, long.wait_s) == pytest.approx(
        (1000 / short.prefill_tokens_per_s, 4000 / long.prefill_tokens_per_s)
    )

    beside, behind = lane_work(EngineShape(), 32, 0, (0, 4000), 2.0)
    assert beside.wait_s == 0.0
    assert behind.prefill_tokens_per_s < beside.prefill_tokens_per_s, "long prompts lengthen a step little"

    one, other = lane_work(EngineShape(long_prompt_tokens=0), 32, 4, (500, 0), 1.0)
    assert one == other, "a server without lanes"
