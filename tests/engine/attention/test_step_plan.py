"""The plan of a step: which sequences share a call, and which keys and masks each call reads."""

from __future__ import annotations

import torch

from engine.attention.base import AttentionSpec
from engine.attention.step_plan import StepPlanner
from tests.engine.attention.reference import make_batch

SPEC = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=8, scale=0.3)
WINDOWED = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=8, scale=0.3, sliding_window=6)


def planner(sequences: list[tuple[int, int]], *, is_scattered: bool = False) -> StepPlanner:
    return StepPlanner(make_batch(SPEC, sequences, block_size=4, seed=2, is_scattered=is_scattered).context)


def test_a_decoding_sequence_in_consecutive_blocks_is_read_where_it_lies() -> None:
    plan = planner([(20, 1)]).plan(SPEC)
    (seq,) = plan.sequences
    assert plan.groups == []
    assert (seq.key_start, seq.num_keys, seq.slots, seq.mask) == (0, 21, None, None)


def test_scattered_and_short_sequences_share_a_call_and_a_long_view_does_not() -> None:
    plan = planner([(20, 1), (900, 1), (30, 1)]).plan(SPEC)
    (group,), (seq,) = plan.groups, plan.sequences
    assert (group.sequences, group.num_seen) == ([0, 2], 31)
    assert group.token_indices is not None
    assert group.token_indices.tolist() == [0, 2]
    assert (seq.token_start, seq.num_keys) == (1, 901)


def test_a_group_hides_what_lies_behind_a_shorter_sequence() -> None:
    (group,) = planner([(6, 1), (10, 1)], is_scattered=True).plan(SPEC).groups
    assert group.mask is not None
    is_seen = (group.mask == 0).view(2, group.width)
    assert is_seen.sum(1).tolist() == [7, 11]
    assert is_seen[0, :7].all()
    assert group.token_indices is None


def test_a_first_chunk_is_causal_and_a_later_one_has_a_mask_for_each_query_head() -> None:
    (first,) = planner([(0, 9)]).plan(SPEC).sequences
    assert (first.is_causal, first.mask) == (True, None)
    (later,) = planner([(5, 3)]).plan(SPEC).sequences
    assert later.mask is not None
    is_seen = later.mask == 0
    assert is_seen.shape == (2 * 3, 8)
    assert is_seen.sum(1).tolist() == [6, 7, 8] * 2


def test_a_window_leaves_out_the_keys_that_no_query_sees() -> None:
    (seq,) = planner([(20, 1)]).plan(WINDOWED).sequences
    assert (seq.key_start, seq.num_keys, seq.mask) == (15, 6, None)
    (chunk,) = planner([(20, 3)]).plan(WINDOWED).sequences
    assert (chunk.key_start, chunk.num_keys) == (15, 8)
    assert chunk.mask is not None
    assert (chunk.mask == 0).sum(1).tolist() == [6] * 6


def test_a_scattered_prompt_reads_its_slots_by_its_block_table() -> None:
    batch = make_batch(SPEC, [(9, 3)], block_size=4, seed=2, is_scattered=True)
    (seq,) = StepPlanner(batch.context).plan(SPEC).sequences
    assert seq.slots is not None
    assert torch.equal(seq.slots, torch.cat((batch.past_slots, batch.context.slot_mapping)))


def test_only_the_longest_prompt_without_a_window_is_stored_for_the_next_chunk() -> None:
    made = planner([(9, 3), (20, 5), (30, 1)], is_scattered=True)
    plan = made.plan(SPEC, max_retained_slots=1000)
    retained = [seq.prompt for seq in plan.sequences if seq.prompt is not None]
    assert [(prompt.start, prompt.end) for prompt in retained] == [(20, 25)]
    assert plan.prompt is retained[0]
    assert made.plan(WINDOWED, max_retained_slots=1000).prompt is None
    assert made.plan(SPEC, max_retained_slots=20).prompt is not retained[0]
