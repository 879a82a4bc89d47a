"""Codes and scales keep every number within their bound."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.quantization.weights import GroupWeight, Mxfp4Weight, quantize_channels, quantize_groups


@given(seed=st.integers(0, 1 << 20), magnitude=st.sampled_from([1e-6, 1.0, 1e6]))
@settings(max_examples=25, deadline=None)
def test_int8_moves_no_number_by_more_than_half_a_scale(seed: int, magnitude: float) -> None:
    weight = torch.randn(7, 33, generator=torch.Generator().manual_seed(seed)) * magnitude

    quantized = quantize_channels(weight)

    errors = (quantized.dequantize() - weight).abs()
    assert (errors <= quantized.scales.unsqueeze(1) * 0.5001).all()
    assert int(quantized.codes.min()) >= -127


def test_outputs_of_zeros_stay_zeros() -> None:
    weight = torch.zeros(3, 32)

    assert torch.equal(quantize_channels(weight).dequantize(), weight)
    assert torch.equal(quantize_groups(weight, 32).dequantize(), weight)


@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_int4_is_no_worse_than_the_full_range_would_be(group_size: int) -> None:
    weight = torch.randn(24, 256, generator=torch.Generator().manual_seed(3))
    groups = weight.view(24, -1, group_size)
    step = (groups.amax(2) - groups.amin(2)) / 15

    quantized = quantize_groups(weight, group_size)

    squared = (quantized.dequantize() - weight).view_as(groups).square().mean(2)
    # A uniform error over one step has a variance of step² / 12; shrinking the range may only lower it.
    assert float(squared.mean() / (step.square() / 12).mean()) < 1.02
    assert int(quantized.codes.max()) <= 15
    assert quantized.group_size == group_size


def test_one_sided_groups_use_all_codes() -> None:
    weight = torch.rand(4, 32, generator=torch.Generator().manual_seed(3)) + 0.5

    quantized = quantize_groups(weight, 32)

    assert (quantized.dequantize() - weight).abs().max() < 0.08


def test_groups_must_divide_the_inputs() -> None:
    with pytest.raises(ValueError, match="groups of 64 do not divide 96 inputs"):
        quantize_groups(torch.zeros(2, 96), 64)


def test_an_order_puts_columns_back_where_inputs_are() -> None:
    plain = quantize_groups(torch.randn(4, 64), 32)
    order = torch.randperm(64)
    ordered = GroupWeight(plain.codes, plain.scales, plain.zeros, 4, order)

    assert torch.equal(ordered.dequantize()[:, order], plain.dequantize())


def test_rows_can_be_taken_in_any_order() -> None:
    quantized = quantize_groups(torch.randn(6, 64), 32)
    indices = torch.tensor([5, 0, 3])

    assert torch.equal(quantized.rows(indices).dequantize(), quantized.dequantize()[indices])


def test_mxfp4_numbers_are_whole_codes_in_groups() -> None:
    generator = torch.Generator().manual_seed(3)
    codes = torch.randint(0, 256, (5, 48), dtype=torch.uint8, generator=generator)
    exponents = torch.randint(100, 140, (5, 3), dtype=torch.uint8, generator=generator)
    weight = Mxfp4Weight(codes, exponents)

    found = weight.in_groups()

    assert (found.bits, found.group_size, found.codes.dtype) == (8, 32, torch.uint8)
    assert torch.equal(found.dequantize(), weight.dequantize())
