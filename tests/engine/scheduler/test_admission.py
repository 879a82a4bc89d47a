"""Requests that no core can serve, and sequences that may not start yet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.forecast.output_forecast import OutputForecast
from engine.forecast.step_time import StepShape, StepTimeModel
from engine.kv_cache.block_manager import BlockManager
from engine.scheduler.admission import Limits, SequenceAdmission
from tests.engine.core.fakes import FakeCore, make_add
from tests.engine.step.sequences import sequence


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


def test_what_cannot_reach_its_first_token_in_time_is_not_started() -> None:
    core = FakeCore()
    for _ in range(20):
        core.step_time.observe(StepShape(0, 32, 32), 0.2)
    core.add(make_add(1, range(30), deadline_s=0.1))
    core.run()
    assert "before the first token" in (core.ends[1].error or "")
    assert core.model.num_computed_tokens == 0


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


def admission(*, num_blocks: int = 64, max_num_seqs: int = 4, prior_tokens: float = 8.0) -> SequenceAdmission:
    """Return the admission of an idle core with blocks of 4 tokens, whose steps take 10 ms and 1 ms a prompt token."""
    limits = Limits(
        max_model_len=64, vocab_size=97, max_num_seqs=max_num_seqs, max_num_batched_tokens=16, max_waiting=9
    )
    step_time = StepTimeModel()
    for num_tokens in (1, 2, 4, 8, 16) * 4:
        step_time.observe(StepShape(0, num_tokens, 0, num_chunks=1), 0.01 + 0.001 * num_tokens)
    return SequenceAdmission(limits, BlockManager(num_blocks, 4), OutputForecast(prior_tokens=prior_tokens), step_time)


def test_a_longest_sequence_beyond_the_whole_pool_is_a_wrong_setting() -> None:
    with pytest.raises(ValueError, match="exceeds the pool of 15 blocks"):
        admission(num_blocks=15)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"logit_bias": {97: 1.0}}, "logit_bias: token id 97 is outside the vocabulary of 97"),
        ({"stop_token_ids": (3, -1)}, "stop_token_ids: token id -1"),
        ({"logit_bias": {96: 1.0}, "stop_token_ids": (0, 96)}, None),
    ],
)
def test_every_token_id_of_a_request_must_exist(params: dict[str, Any], message: str | None) -> None:
    add = make_add(1, [1, 2])
    found = admission().refusal(msgspec.structs.replace(add, params=msgspec.structs.replace(add.params, **params)), 0)
    assert found is None if message is None else message in (found or "")


def test_room_behind_a_sequence_is_its_share_of_the_free_blocks_at_most_what_it_may_produce() -> None:
    few, many = (sequence(range(4), max_tokens=max_tokens) for max_tokens in (8, 60))
    assert admission().room_tokens(few) == 8
    assert admission().room_tokens(many) == 60
    assert admission(max_num_seqs=16).room_tokens(many) == 64 // 16 * 4


def test_a_deadline_is_missed_by_the_time_of_all_chunks_that_are_not_cached() -> None:
    seq = sequence(range(32), deadline_s=0.05)
    two_chunks_s, one_chunk_s = 2 * 0.026, 0.026
    assert admission().misses_deadline(seq, 0, 0, now=0.05 - two_chunks_s + 0.002)
    assert not admission().misses_deadline(seq, 0, 0, now=0.05 - two_chunks_s - 0.002)
    assert not admission().misses_deadline(seq, 16, 0, now=0.05 - one_chunk_s - 0.002)
    assert not admission().misses_deadline(sequence(range(32)), 0, 0, now=9.0)
