"""Every kernel computes what its arithmetic guarantees, for any number of rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.quantization.kernels import (
    DYNAMIC_INT8,
    WEIGHT_ONLY_GROUPS,
    WEIGHT_ONLY_INT8,
    Kernel,
    KernelKind,
    UnpackBuffer,
)
from engine.quantization.weights import ChannelWeight, GroupWeight, quantize_channels, quantize_groups

_SHAPE = (48, 128)
_ROWS = (1, 2, 7, 40)


def product(kernel: Kernel, inputs: torch.Tensor) -> torch.Tensor:
    """With the scales multiplied in."""
    values, scales = kernel.multiply(inputs)
    return values.float() if scales is None else values.float() * scales


def relative_error(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Length of the difference beside the length of what is expected."""
    return float((result - expected).norm() / expected.norm())


def row_codes(inputs: torch.Tensor) -> torch.Tensor:
    """What dynamic kernels make of their inputs, as numbers."""
    lengths = inputs.abs().amax(1, keepdim=True)
    return (inputs / lengths * 127).round() / 127 * lengths


@pytest.mark.parametrize("kind", WEIGHT_ONLY_INT8, ids=lambda kind: kind.name)
@pytest.mark.parametrize("num_rows", _ROWS)
def test_weight_only_int8_equals_the_dequantized_product(kind: KernelKind[Any], num_rows: int) -> None:
    torch.manual_seed(1)
    weight, inputs = quantize_channels(torch.randn(_SHAPE)), torch.randn(num_rows, _SHAPE[1])

    result = product(kind.build(weight, UnpackBuffer()), inputs)

    assert relative_error(result, inputs.bfloat16().float() @ weight.dequantize().t()) < 0.004


@pytest.mark.parametrize("kind", DYNAMIC_INT8, ids=lambda kind: kind.name)
@pytest.mark.parametrize("num_rows", _ROWS)
def test_dynamic_int8_equals_the_product_of_rounded_rows(kind: KernelKind[Any], num_rows: int) -> None:
    torch.manual_seed(1)
    weight, inputs = quantize_channels(torch.randn(_SHAPE)), torch.randn(num_rows, _SHAPE[1])
    if not kind.can_run(weight):
        pytest.skip("not in this build of torch, or not exact on this processor")
    inputs *= torch.logspace(-3, 3, num_rows).unsqueeze(1)

    result = product(kind.build(weight, UnpackBuffer()), inputs)

    # Row by row: a large row must not cost a small one its accuracy.
    for row, expected in zip(result, row_codes(inputs) @ weight.dequantize().t(), strict=True):
        assert relative_error(row, expected) < 1e-3


@pytest.mark.parametrize("num_rows", _ROWS)
def test_no_dynamic_kernel_that_is_used_cuts_large_codes_off(num_rows: int) -> None:
    weight = ChannelWeight(torch.full(_SHAPE, 127, dtype=torch.int8), torch.ones(_SHAPE[0]))
    inputs = torch.ones(num_rows, _SHAPE[1])
    usable = [kind for kind in DYNAMIC_INT8 if kind.can_run(weight)]

    assert usable
    for kind in usable:
        assert torch.allclose(product(kind.build(weight, UnpackBuffer()), inputs), torch.tensor(127.0 * _SHAPE[1]))


@pytest.mark.parametrize("kind", DYNAMIC_INT8, ids=lambda kind: kind.name)
def test_a_row_among_others_gets_the_numbers_it_gets_alone(kind: KernelKind[Any]) -> None:
    torch.manual_seed(2)
    weight, inputs = quantize_channels(torch.randn(_SHAPE)), torch.randn(9, _SHAPE[1])
    if not kind.can_run(weight):
        pytest.skip("not in this build of torch, or not exact on this processor")
    kernel = kind.build(weight, UnpackBuffer())

    together = product(kernel, inputs)

    assert torch.equal(together, torch.cat([product(kernel, row.unsqueeze(0)) for row in inputs]))


@pytest.mark.parametrize("name", ["packed_int8", "packed_int4"])
def test_packed_kernels_give_a_row_the_same_numbers_in_any_company(name: str) -> None:
    torch.manual_seed(2)
    weight, inputs = torch.randn(_SHAPE), torch.randn(9, _SHAPE[1])
    kernel: Kernel
    if name == "packed_int8":
        kernel = WEIGHT_ONLY_INT8[0].build(quantize_channels(weight), UnpackBuffer())
    else:
        kernel = WEIGHT_ONLY_GROUPS[0].build(quantize_groups(weight, 32), UnpackBuffer())

    together = product(kernel, inputs)

    assert torch.equal(together, torch.cat([product(kernel, row.unsqueeze(0)) for row in inputs]))


@pytest.mark.parametrize("kind", WEIGHT_ONLY_GROUPS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("num_rows", _ROWS)
def test_int4_equals_the_dequantized_product(kind: KernelKind[Any], group_size: int, num_rows: int) -> None:
    torch.manual_seed(1)
    weight, inputs = quantize_groups(torch.randn(_SHAPE), group_size), torch.randn(num_rows, _SHAPE[1])

    result = product(kind.build(weight, UnpackBuffer()), inputs)

    assert relative_error(result, inputs.bfloat16().float() @ weight.dequantize().t()) < 0.006


def test_shapes_that_the_packed_int4_kernel_does_not_take_are_left_to_the_other() -> None:
    packed, unpacked = WEIGHT_ONLY_GROUPS
    odd = GroupWeight(torch.zeros(3, 16, dtype=torch.uint8), torch.ones(3, 2), torch.zeros(3, 2), 4)

    assert not packed.can_run(odd)
    assert unpacked.can_run(odd)


def test_rows_of_zeros_give_zeros() -> None:
    weight = quantize_channels(torch.randn(_SHAPE))
    for kind in DYNAMIC_INT8:
        if kind.can_run(weight):
            assert not product(kind.build(weight, UnpackBuffer()), torch.zeros(2, _SHAPE[1])).any()
