"""Where in a step each sequence's states and inputs stand."""

from __future__ import annotations

import torch

from engine.attention.step_states import StateUse, StepStates

CPU = torch.device("cpu")
USES = [StateUse(3, 4), StateUse(None, 5), StateUse(0, 6, ((2, 9),))]


def test_every_state_that_is_written_has_its_place_and_its_slot() -> None:
    states = StepStates.of(USES, [0, 1, 2, 5], 3, CPU)

    assert states.reads.tolist() == [3, -1, 0]
    assert states.cut_ends.tolist() == [[1, 0, 0], [1, 0, 0], [2, 3, 0]]
    assert states.cut_slots.tolist() == [[4, -1, -1], [5, -1, -1], [9, 6, -1]]
    assert states.written.tolist() == [4, 5, 9, 6]
    assert states.num_slots == 10


def test_windows_reach_from_the_earlier_inputs_of_their_sequence_into_the_step() -> None:
    states = StepStates.of(USES, [0, 1, 2, 5], 3, CPU)

    assert states.windows.tolist() == [[0, 1, 6], [2, 3, 7], [4, 5, 8], [5, 8, 9], [8, 9, 10]]
    assert states.cut_windows.tolist() == [[1, 6], [3, 7], [8, 9], [9, 10]]


def test_a_step_of_single_tokens_is_the_same_with_slots_on_the_device() -> None:
    uses = [StateUse(3, 4), StateUse(0, 1)]
    usual = StepStates.of(uses, [0, 1, 2], 4, CPU)
    single = StepStates.of_single_tokens(torch.tensor([3, 0]), torch.tensor([4, 1]), 4, 5)

    assert usual.are_single_tokens
    for name in ("reads", "starts", "windows", "cut_windows", "written"):
        assert torch.equal(getattr(usual, name), getattr(single, name)), name
    assert torch.equal(usual.cut_ends[:, :1], single.cut_ends)
    assert torch.equal(usual.cut_slots[:, :1], single.cut_slots)


def test_a_sequence_that_begins_or_has_several_tokens_is_no_single_token() -> None:
    assert not StepStates.of([StateUse(None, 4)], [0, 1], 4, CPU).are_single_tokens
    assert not StepStates.of([StateUse(1, 4)], [0, 2], 4, CPU).are_single_tokens


def test_a_sequence_without_tokens_has_no_part_in_the_step() -> None:
    states = StepStates.of([StateUse(3, 4), StateUse(0, 1)], [0, 0, 1], 2, CPU)

    assert states.cut_ends.tolist() == [[0, 0, 0], [1, 0, 0]]
    assert (states.written.tolist(), states.windows.tolist(), states.num_slots) == ([1], [[1, 2]], 5)
