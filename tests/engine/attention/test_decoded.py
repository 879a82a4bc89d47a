"""Decoding sequences and their match with those of the step before."""

from __future__ import annotations

import numpy as np
import torch

from engine.attention.base import ForwardContext
from engine.attention.decoded import Decoded

SIZE = 4


def state(*sequences: tuple[int, list[int]]) -> Decoded:
    """Return sequences of these lengths in these blocks, one token each."""
    width = max(len(blocks) for _, blocks in sequences)
    tables = np.array([blocks + [0] * (width - len(blocks)) for _, blocks in sequences])
    seqs = list(range(len(sequences)))
    return Decoded(seqs, seqs, [length for length, _ in sequences], tables)


def test_a_sequence_continues_the_one_whose_blocks_it_has_and_one_token_more() -> None:
    before = state((5, [1, 2]), (8, [3, 4]), (2, [5]))
    now = state((9, [3, 4, 7]), (3, [5]), (6, [1, 2]))
    assert now.predecessors(before, SIZE) == [1, 2, 0]


def test_more_tokens_other_blocks_and_first_steps_continue_nothing() -> None:
    before = state((5, [1, 2]), (8, [3, 4]))
    assert state((7, [1, 2])).predecessors(before, SIZE) == [None]
    assert state((6, [9, 2])).predecessors(before, SIZE) == [None]
    assert state((1, [6])).predecessors(before, SIZE) == [None]
    assert state((5, [1, 2])).predecessors(before, SIZE) == [None]


def test_places_in_the_step_count_for_standing_alike() -> None:
    before = state((5, [1, 2]), (8, [3, 4]))
    assert state((6, [1, 2]), (9, [3, 4, 5])).stands_like(before)
    assert not state((6, [1, 2])).stands_like(before)


def test_only_rows_of_one_token_are_in_the_state_and_their_tables_are_copies() -> None:
    tables = torch.tensor([[1, 2], [3, 0], [4, 5]])
    context = ForwardContext(
        positions=torch.tensor([5, 0, 1, 6]),
        slot_mapping=torch.tensor([9, 12, 13, 22]),
        query_starts=[0, 1, 3, 4],
        context_lens=[6, 2, 7],
        block_tables=tables,
        block_size=SIZE,
    )
    found = Decoded.of(context, tables.numpy())
    assert found is not None
    tables.zero_()
    assert (found.sequences, found.tokens, found.context_lens) == ([0, 2], [0, 3], [6, 7])
    assert found.tables.tolist() == [[1, 2], [4, 5]]
