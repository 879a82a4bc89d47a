"""A step while it is put together: its budget counts every sequence and every draft token."""

from __future__ import annotations

import pytest

from engine.scheduler.plan import StepDraft, next_chunk
from tests.engine.step.sequences import sequence


@pytest.mark.parametrize(
    ("num_computed", "budget", "start", "num_tokens", "samples"),
    [(0, 4, 0, 4, False), (0, 10, 0, 10, True), (0, 99, 0, 10, True), (8, 1, 8, 1, False), (9, 1, 9, 1, True)],
)
def test_a_chunk_goes_on_where_the_sequence_is_and_samples_at_its_end(
    num_computed: int, budget: int, start: int, num_tokens: int, samples: bool
) -> None:
    seq = sequence(range(10))
    seq.num_computed_tokens = num_computed
    chunk = next_chunk(seq, budget)
    assert (chunk.start, chunk.num_tokens, chunk.samples) == (start, num_tokens, samples)


def test_a_token_that_lies_in_a_shared_block_is_marked_as_stored() -> None:
    seq = sequence(range(8))
    seq.num_computed_tokens, seq.num_shared_tokens = 7, 8
    assert next_chunk(seq, 5).is_stored
    seq.num_shared_tokens = 4
    assert not next_chunk(seq, 5).is_stored


def test_rows_and_drafts_take_budget_and_a_dropped_row_gives_all_of_it_back() -> None:
    plan, seq, other = StepDraft(20), sequence(range(5), seq_id=1), sequence(range(3), seq_id=2)
    plan.add(next_chunk(seq, plan.budget))
    plan.add(next_chunk(other, plan.budget))
    assert plan.budget == 12
    plan.extend(plan.chunks[1], (7, 8))
    assert plan.budget == 10
    assert plan.output().chunks[0].draft_token_ids == (7, 8)
    plan.drop(seq)
    plan.drop(seq)
    assert plan.budget == 17
    assert [chunk.seq for chunk in plan.output().chunks] == [other]


@pytest.mark.parametrize(("num_computed", "num_tokens"), [(0, 10), (4, 6), (10, 16), (26, 4), (29, 1)])
def test_resumed_output_is_computed_in_short_chunks_of_its_own(num_computed: int, num_tokens: int) -> None:
    seq = sequence(range(30))
    seq.num_prompt_tokens, seq.num_resumed_tokens = 10, 20
    seq.num_computed_tokens = num_computed
    assert next_chunk(seq, 99).num_tokens == num_tokens
