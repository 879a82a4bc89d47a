"""Weights that float16 holds too are read in half the bytes and are equal."""

from __future__ import annotations

import time

import pytest
import torch

from engine.models.linear import PackedLinear
from engine.quantization.choice import KernelTable
from engine.quantization.linear import QuantizedLinear
from engine.quantization.maker import LinearMaker
from engine.quantization.plain_kernels import HALF_ROWS, fits_half
from engine.quantization.weights import PlainWeight


def bfloat16_numbers(*shape: int) -> torch.Tensor:
    torch.manual_seed(2)
    return (torch.randn(shape) * 0.02).bfloat16().float()


needs_half_rows = pytest.mark.skipif(
    not HALF_ROWS.can_run(PlainWeight(torch.ones(1, 1))), reason="this build of torch has no FBGEMM"
)


def test_only_numbers_that_float16_holds_fit() -> None:
    torch.manual_seed(1)
    assert fits_half(bfloat16_numbers(64, 64))
    assert fits_half(torch.randn(64, 64).half().float())
    assert not fits_half(torch.randn(64, 64))
    assert not fits_half(torch.full((64, 64), 1e6))
    assert not fits_half(torch.full((64, 64), 1e-9))
    assert not fits_half(torch.full((64, 64), float("nan")))
    assert not fits_half(bfloat16_numbers(64, 64).bfloat16())


def test_a_few_numbers_too_small_to_matter_are_no_obstacle() -> None:
    weight = bfloat16_numbers(64, 64)
    weight[::9, ::7] = 1e-9

    assert fits_half(weight)


@needs_half_rows
@pytest.mark.parametrize("num_rows", [1, 5, 40])
@pytest.mark.parametrize("has_bias", [False, True])
@torch.inference_mode()
def test_all_verbs_equal_the_product_of_float32_numbers(num_rows: int, has_bias: bool) -> None:
    weight, inputs = bfloat16_numbers(160, 128), torch.randn(num_rows, 256)[:, :128]
    bias = torch.randn(160) if has_bias else None
    expected = (inputs.double() @ weight.double().t() + (0 if bias is None else bias)).float()
    linear = LinearMaker("none", KernelTable(time.perf_counter, ("half_rows",))).dense(weight, bias)
    out, total = torch.empty(num_rows, 160), torch.ones(num_rows, 160)

    linear.into(inputs, out)
    linear.add_to(total, inputs)

    assert isinstance(linear, QuantizedLinear)
    for result in (linear.apply(inputs), out, total - 1):
        assert torch.allclose(result, expected, atol=2e-6, rtol=1e-6)


@needs_half_rows
@torch.inference_mode()
def test_a_row_has_the_same_numbers_alone_and_among_others_but_for_the_order_of_sums() -> None:
    inputs, weight = torch.randn(72, 128), bfloat16_numbers(160, 128)
    linear = LinearMaker("none", KernelTable(time.perf_counter, ("half_rows",))).dense(weight)
    alone = torch.cat([linear.apply(inputs[row : row + 1]) for row in range(72)])
    # Of a sum of so many products, in whatever order (Higham, Accuracy and Stability, 3.1).
    rounding = inputs.shape[1] * 2.0**-24 * (inputs.abs() @ weight.abs().t())

    for num_rows in (2, 8, 17, 72):
        together = linear.apply(inputs[:num_rows])
        assert ((together - alone[:num_rows]).abs() <= rounding[:num_rows]).all()
        # With AVX2 FBGEMM has products of their own for some numbers of rows.
        if torch.backends.cpu.get_cpu_capability() == "AVX512":
            assert torch.equal(together, alone[:num_rows])


def test_numbers_that_need_float32_stay_float32() -> None:
    linear = LinearMaker("none", KernelTable(time.perf_counter, ("half_rows",))).dense(torch.randn(160, 128))

    assert isinstance(linear, PackedLinear)
