"""Hidden states belong to the newest token of their sequence, or to nobody."""

from __future__ import annotations

import torch

from engine.protocol import Add, SamplingParams
from engine.step.batch import RowResult, ScheduledRow
from engine.step.hidden_states import Chosen, HiddenStates
from engine.step.sequence import Sequence

HIDDEN = torch.arange(12.0).view(6, 2)


def sequence(seq_id: int, num_tokens: int) -> Sequence:
    params = SamplingParams(max_tokens=50, temperature=0.0)
    add = Add(seq_id=seq_id, prompt_token_ids=[1] * num_tokens, params=params)
    return Sequence.from_add(add, arrival_index=0, received_at=0.0)


def step(*rows: tuple[Sequence, tuple[int, ...], list[int]]) -> HiddenStates:
    """One step of rows (sequence, its drafts, what it said)."""
    states = HiddenStates()
    scheduled = [
        ScheduledRow(seq, seq.num_tokens - 1, 1, samples=True, draft_token_ids=drafts) for seq, drafts, _ in rows
    ]
    states.keep(HIDDEN, scheduled, [RowResult(said) for _, _, said in rows])
    for seq, _, said in rows:
        seq.token_ids.extend(said)
    return states


def test_the_state_is_the_one_that_the_newest_token_was_chosen_from() -> None:
    one, other = sequence(1, 5), sequence(2, 9)
    states = step((one, (7, 8, 9), [7, 8, 4]), (other, (3,), [5]))
    assert states.rows_of([other, one]) == [(0, 1), (1, 0)]
    assert torch.equal(states.of_chosen(), HIDDEN[[2, 4]])


def test_a_sequence_that_the_step_did_not_choose_for_has_none() -> None:
    one, other = sequence(1, 5), sequence(2, 9)
    states = step((one, (), [7]))
    assert states.rows_of([other, one]) == [(1, 0)]
    assert torch.equal(states.of_chosen(), HIDDEN[:1])
    assert states.rows_of([other]) == []
    assert HiddenStates().rows_of([one]) == []


def test_all_rows_in_order_are_told_from_any_others() -> None:
    one, other = sequence(1, 5), sequence(2, 9)
    states = step((one, (7, 8, 9), [7, 8, 4]), (other, (3,), [5]))
    assert states.are_of([one, other])
    assert not states.are_of([other, one])
    assert not states.are_of([one])
    other.token_ids.append(3)
    assert not states.are_of([one, other])
    assert not step((one, (), [])).are_of([one])


def test_of_rounds_there_is_one_state_for_each_sequence() -> None:
    one, other = sequence(1, 5), sequence(2, 9)
    states = HiddenStates()
    rows = [
        ScheduledRow(seq, seq.num_tokens - 1, 1, samples=True, draft_token_ids=drafts)
        for seq, drafts in ((one, (7, 8, 9)), (other, ()))
    ]
    states.keep_last(HIDDEN[:2], rows, [RowResult([7, 8, 4, 3, 3], num_rounds=2), RowResult([5, 6], num_rounds=2)])
    one.token_ids.extend([7, 8, 4, 3, 3])
    other.token_ids.extend([5, 6])
    assert states.are_of([one, other])
    assert states.rows_of([other, one]) == [(0, 1), (1, 0)]
    assert torch.equal(states.of_chosen(), HIDDEN[:2])


def test_a_row_that_failed_has_none() -> None:
    one = sequence(1, 5)
    assert step((one, (), [])).rows_of([one]) == []


def test_a_sequence_that_went_on_without_it_has_none() -> None:
    one = sequence(1, 5)
    states = step((one, (), [7]))
    one.token_ids.append(3)
    assert states.rows_of([one]) == []


def test_whoever_looks_ahead_is_told_and_finds_what_was_chosen_last() -> None:
    told: list[Chosen] = []
    states = HiddenStates()
    states.on_kept = lambda: told.append(states.chosen())
    one, other, failed = sequence(1, 5), sequence(2, 9), sequence(3, 4)
    rows = [
        ScheduledRow(one, 4, 1, samples=True, draft_token_ids=(7, 8)),
        ScheduledRow(failed, 3, 1, samples=True),
        ScheduledRow(other, 8, 1, samples=True),
    ]
    states.keep(HIDDEN, rows, [RowResult([7, 3]), RowResult([], error="no numbers"), RowResult([6])])
    assert told == [[(one, [7, 3]), (other, [6])]]
    assert torch.equal(states.of_chosen(), HIDDEN[[1, 4]])
