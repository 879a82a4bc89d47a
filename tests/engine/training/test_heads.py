"""Prediction heads are trained beside a finished model, which stays as it is."""

from __future__ import annotations

import torch

from engine.training.heads import HiddenStateMemory, following_tokens


def test_what_follows_a_token_ends_with_its_answer() -> None:
    ids = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7]])
    is_target = torch.tensor([[False, True, True, True, False, True, True, False]])  # tokens 2 to 4, and 6 to 7
    assert following_tokens(ids, is_target, 3).tolist() == [[2, 3, 4], [3, 4, -1], [4, -1, -1], [6, 7, -1], [7, -1, -1]]


def test_the_oldest_states_are_forgotten_first() -> None:
    memory = HiddenStateMemory(4, 2, 1)
    for number in range(6):
        memory.put(torch.full((1, 2), float(number)), torch.tensor([[number]]))
    hidden, tokens = memory.draw(200, torch.Generator().manual_seed(1))
    assert set(tokens.flatten().tolist()) == {2, 3, 4, 5}
    assert torch.equal(hidden[:, 0].long(), tokens[:, 0])
