"""Unpacked weights of projections, by projection."""

from __future__ import annotations

import pytest
import torch

from engine.models.linear import DenseLinear
from engine.models.raw_weights import RawWeight, RawWeights

EXACT = torch.tensor([[1.0, -0.5], [3.0, 0.0]])


@pytest.mark.parametrize(
    ("weight", "fits"),
    [
        (EXACT, True),
        (EXACT + 2.0**-20, False),
        (torch.full((2, 2), 1e-45), False),
        (torch.zeros(2, 2, dtype=torch.int8), False),
        (EXACT.bfloat16(), False),
    ],
)
def test_only_float32_weights_that_survive_rounding_fit_bfloat16(weight: torch.Tensor, fits: bool) -> None:
    assert RawWeight(weight, None, None).fits_bfloat16() is fits


def test_weights_belong_to_their_projection_and_not_to_an_equal_one() -> None:
    retained, one, other = RawWeights(), DenseLinear(EXACT), DenseLinear(EXACT)
    bias, scales = torch.ones(2), torch.full((2,), 0.5)
    retained.put(one, EXACT, bias, scales, rounds_inputs=True)
    found = retained.of(one)
    assert found is not None
    assert (found.bias is bias, found.scales is scales, found.rounds_inputs) == (True, True, True)
    assert retained.of(other) is None


def test_a_new_projection_at_the_address_of_an_old_one_has_no_weights_of_it() -> None:
    retained = RawWeights()
    for number in range(50):
        retained.put(DenseLinear(EXACT), EXACT + number, None)
    assert retained.of(DenseLinear(EXACT)) is None
