"""Products of bfloat16 pairs: exact up to the order of float32 sums, and the same for a row whoever shares its tile."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.cpu.gemm import pair_tiles
from engine.cpu.gemm.products import PAIRS
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.layout import PROJECTION
from tests.engine.cpu.gemm.packing import packed

pytestmark = pytest.mark.skipif(not pair_tiles.IS_THERE, reason="the processor does not multiply bfloat16")


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).bfloat16()


def multiply(weights: torch.Tensor, first: int, num_outputs: int, rows: torch.Tensor) -> npt.NDArray[np.float32]:
    num_rows, size = rows.shape
    out = np.full((num_rows, num_outputs + 3), 7.0, np.float32)
    by_vectors = packed(weights)
    record = np.zeros(1, dtype=PROJECTION)
    record["packed"], record["num_inputs"] = by_vectors.data_ptr(), size
    PAIRS.multiply(record.ctypes.data, first, num_outputs, rows.data_ptr(), num_rows, out.ctypes.data, num_outputs + 3)
    assert (out[:, num_outputs:] == 7.0).all(), "nothing is written behind the last output"
    return out[:, :num_outputs]


@pytest.mark.parametrize("num_rows", [1, 2, 3, 7, 12, 13, 30])
@pytest.mark.parametrize("num_outputs", [3, LANES, 2 * LANES, 3 * LANES + 4])
def test_products_equal_torchs(num_rows: int, num_outputs: int) -> None:
    weights, rows = numbers(num_outputs + LANES, 5 * LANES), numbers(num_rows, 5 * LANES, seed=2)

    found = multiply(weights, LANES, num_outputs, rows)

    expected = rows.double() @ weights[LANES:].double().T
    assert np.abs(found - expected.numpy()).max() < 1e-4


@pytest.mark.parametrize("num_together", [1, 2, 5, 6, 12])
def test_a_row_gets_the_same_numbers_whatever_rows_share_its_tile(num_together: int) -> None:
    num_outputs = 3 * LANES + 4
    weights, rows = numbers(num_outputs, 3 * LANES), numbers(13, 3 * LANES, seed=2)

    parts = [multiply(weights, 0, num_outputs, rows[at : at + num_together]) for at in range(0, 13, num_together)]

    assert (np.concatenate(parts) == multiply(weights, 0, num_outputs, rows)).all()


def test_rows_are_rounded_to_the_nearest_number() -> None:
    row = torch.from_numpy(np.random.default_rng(3).standard_normal(4 * LANES).astype(np.float32))
    out = torch.zeros(4 * LANES, dtype=torch.bfloat16)

    pair_tiles.round_to_pairs(row.data_ptr(), 4 * LANES, out.data_ptr())

    assert torch.equal(out, row.bfloat16())
