"""Packed bit masks as tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.sampling.grammar_mask import unpack_mask


@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 410])
def test_bit_t_of_a_row_states_whether_token_t_is_allowed(vocab_size: int) -> None:
    rng = np.random.default_rng(vocab_size)
    allowed = rng.random((3, vocab_size)) < 0.5
    words = np.zeros((3, -(-vocab_size // 32)), dtype=np.uint32)
    for position, token in np.argwhere(allowed):
        words[position, token // 32] |= np.uint32(1 << (token % 32))
    found = unpack_mask(words.view(np.int32), vocab_size, torch.device("cpu"))
    assert found.dtype == torch.bool
    assert np.array_equal(found.numpy(), allowed)


def test_bits_behind_the_vocabulary_are_cut_off() -> None:
    found = unpack_mask(np.full((1, 2), -1, dtype=np.int32), 40, torch.device("cpu"))
    assert found.shape == (1, 40)
    assert bool(found.all())
