"""Weights of projections before they are packed."""

from __future__ import annotations

import pytest
import torch

from engine.models.raw_weights import RawWeight

EXACT = torch.tensor([[1.0, -0.5], [3.0, 0.0]])


@pytest.mark.parametrize(
    ("weight", "fits"),
    [
        (EXACT, True),
        (EXACT + 2.0**-20, False),
        (torch.full((2, 2), 1e-45), False),
        (torch.zeros(2, 2, dtype=torch.int8), False),
        (EXACT.bfloat16(), True),
        (EXACT.half(), True),
        (torch.full((2, 2), 1.0009765625, dtype=torch.float16), False),
    ],
)
def test_weights_that_survive_rounding_fit_bfloat16(weight: torch.Tensor, fits: bool) -> None:
    assert RawWeight(weight, None, None).fits_bfloat16() is fits
