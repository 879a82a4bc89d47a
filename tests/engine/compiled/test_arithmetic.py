"""The arithmetic of compiled steps, piece by piece, beside torch's."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.compiled import arithmetic
from engine.compiled.tiles import LANES

Floats = npt.NDArray[np.float32]


def numbers(*shape: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def address(array: npt.NDArray[np.generic]) -> int:
    return array.ctypes.data


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("num_outputs", [4, 8, 12, 32])
@pytest.mark.parametrize("is_half", [False, True], ids=["float32", "bfloat16"])
def test_products_equal_torchs(num_rows: int, num_outputs: int, is_half: bool) -> None:
    size = 5 * LANES
    weights = torch.from_numpy(numbers(num_outputs + 4, size))
    stored = weights.bfloat16() if is_half else weights
    inputs, out = numbers(num_rows, size, seed=2), np.zeros((num_rows, num_outputs), np.float32)

    arithmetic.multiply(
        stored.data_ptr(), stored.itemsize, 4, num_outputs, address(inputs), num_rows, size, address(out), num_outputs
    )

    expected = torch.from_numpy(inputs).double() @ stored[4:].double().T
    assert np.abs(out - expected.numpy()).max() < 1e-4


def test_exponentials_are_right_to_a_few_units_in_the_last_place() -> None:
    for x in np.linspace(-87.0, 88.0, 7001).astype(np.float32):
        assert float(arithmetic.exp(x)) == pytest.approx(math.exp(float(x)), rel=3e-7)
    assert arithmetic.exp(np.float32(-1e30)) < 1e-37
    assert math.isfinite(arithmetic.exp(np.float32(1e30)))


def test_a_softmax_leaves_zeros_around_what_is_seen() -> None:
    scores = numbers(48)
    expected = torch.softmax(torch.from_numpy(scores[5:43].copy()) * 0.3, 0)

    arithmetic.softmax(address(scores), 5, 43, 48, np.float32(0.3))

    assert not scores[:5].any()
    assert not scores[43:].any()
    assert np.abs(scores[5:43] - expected.numpy()).max() < 1e-6


@pytest.mark.parametrize("num_queries", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("size", [LANES, 2 * LANES, 5 * LANES])
def test_scores_and_weighted_sums_read_values_that_lie_apart(num_queries: int, size: int) -> None:
    stride, num_keys = size + 32, 16
    memory, queries = numbers(num_keys, stride), numbers(num_queries, size, seed=2)
    scores, out = np.zeros((num_queries, 24), np.float32), np.ones((num_queries, size), np.float32)
    keys = memory[:, :size]

    arithmetic.score(address(memory), stride, num_keys, address(queries), num_queries, size, address(scores), 24)
    arithmetic.weigh(address(scores), 24, num_queries, address(memory), stride, num_keys, address(out), size)

    assert np.abs(scores[:, :16] - queries @ keys.T).max() < 1e-4
    assert np.abs(out - (1.0 + scores[:, :16] @ keys)).max() < 1e-3


def test_rotations_turn_neighbouring_pairs() -> None:
    head, angles = numbers(2 * LANES), numbers(LANES, seed=2)
    turns = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    expected = head.view(np.complex64) * np.exp(1j * angles)

    arithmetic.rotate(address(head), address(turns), head.size)

    assert np.abs(head.view(np.complex64) - expected).max() < 1e-6
