"""The matrix unit multiplies bfloat16; what it is given of a float32 loses nothing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from numba import njit

from engine.cpu.gemm.matrix_unit import (
    PIECE_BYTES,
    TILE_INPUTS,
    TILE_OUTPUTS,
    configuration,
    configure,
    cut,
    is_permitted,
    product_1,
    product_2,
    release,
)
from engine.cpu.gemm.panel_tiles import ROW_BYTES, WIDTH

pytestmark = pytest.mark.skipif(not is_permitted(), reason="the processor has no matrix unit, or it may not be used")


@njit
def multiply(unit, weights, size, panel, pieces, out):  # type: ignore[no-untyped-def]
    """32 outputs of all tokens: the first 32 in pairs of columns, the others column by column."""
    for i in range(0, size, 2):
        cut(panel + ROW_BYTES * i, pieces + i // TILE_INPUTS * TILE_INPUTS * PIECE_BYTES + i % TILE_INPUTS // 2 * 64)
    configure(unit)
    product_2(weights, 2 * size, pieces, size // TILE_INPUTS, out)
    for column in (2, 3):
        product_1(weights, 2 * size, pieces + 3072 * column, size // TILE_INPUTS, out + 64 * column)
    release()


def multiplied(weights: torch.Tensor, panel: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """bfloat16 [32, size] times float32 [size, 64]."""
    size = panel.shape[0]
    pieces, out = np.zeros(PIECE_BYTES * size, np.uint8), np.zeros((TILE_OUTPUTS, WIDTH), np.float32)
    unit, numbers = configuration(), weights.contiguous()
    multiply(unit.ctypes.data, numbers.data_ptr(), size, panel.ctypes.data, pieces.ctypes.data, out.ctypes.data)
    return out


def test_a_product_is_no_further_off_than_one_in_float32() -> None:
    rng = np.random.default_rng(3)
    weights = torch.from_numpy(rng.normal(size=(TILE_OUTPUTS, 256))).bfloat16()
    # Of many magnitudes, as what layers add up is.
    panel = (rng.normal(size=(256, WIDTH)) * 10.0 ** rng.uniform(-3, 3, size=(256, 1))).astype(np.float32)

    found = multiplied(weights, panel)

    exact = weights.double().numpy() @ panel.astype(np.float64)
    in_float32 = weights.float().numpy() @ panel
    assert np.abs(found - exact).max() <= 1.5 * np.abs(in_float32 - exact).max()
    assert np.abs(found - exact).max() < 1e-6 * np.abs(exact).max()


@pytest.mark.parametrize("number", [1 / 3, -16777215.0, 1.9999999, 3e-30, -2.5e30])
def test_a_number_is_cut_into_parts_that_are_all_of_it(number: float) -> None:
    weights = torch.eye(TILE_OUTPUTS, 32).bfloat16()
    panel = np.full((32, WIDTH), number, np.float32)

    assert (multiplied(weights, panel) == panel).all()


def test_tokens_do_not_meet() -> None:
    weights = torch.ones(TILE_OUTPUTS, 32).bfloat16()
    panel = np.ones((32, WIDTH), np.float32)
    panel[:, 5] = np.nan
    panel[:, 40] = np.inf

    found = multiplied(weights, panel)

    assert np.isnan(found[:, 5]).all()
    assert not np.isfinite(found[:, 40]).any()
    assert (np.delete(found, [5, 40], axis=1) == 32.0).all()
