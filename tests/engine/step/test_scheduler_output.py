"""What a step is stated to compute."""

from __future__ import annotations

from engine.runner.warm_up import made_up_batch
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput


def test_a_step_alone_verifies_nothing_and_is_followed_by_none() -> None:
    scheduled = made_up_batch(3, 1, 32, num_blocks=64, block_size=16)
    assert (scheduled.has_drafts, scheduled.num_steps, scheduled.predicts) == (False, 1, False)
    shape = scheduled.shape()
    assert (shape.num_decode_seqs, shape.num_context_tokens, shape.num_chunks) == (3, 96, 0)


def test_draft_tokens_are_computed_and_do_not_count_as_known() -> None:
    (chunk,) = made_up_batch(1, 1, 32, num_blocks=64, block_size=16).chunks
    drafting = ScheduledChunk(chunk.seq, chunk.start, 1, samples=True, draft_token_ids=(5, 6))
    assert (drafting.num_query_tokens, drafting.end) == (3, 32)
    assert SchedulerOutput([drafting]).has_drafts


def test_chunks_are_distinguished_from_decoding_rows() -> None:
    shape = made_up_batch(2, 8, 32, num_blocks=64, block_size=16).shape()
    assert (shape.num_decode_seqs, shape.num_prefill_tokens, shape.num_chunks) == (0, 16, 2)
    assert shape.num_attended_pairs == 2 * 8 * 32
