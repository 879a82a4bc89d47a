"""fp8 codes, scales and products; torch multiplies e4m3 on a CPU too, so that only speed needs a GPU to be seen."""

from __future__ import annotations

import os

import pytest
import torch

from engine.quantization.float8 import FLOAT8, FLOAT8_MAX, ScaledRows, quantize_outputs, quantize_rows
from engine.quantization.kernels import KernelKind, UnpackBuffer
from engine.quantization.linear import QuantizedLinear
from engine.quantization.weights import ChannelWeight


def test_rows_keep_three_bits_behind_the_first() -> None:
    rows = torch.randn(5, 64, generator=torch.Generator().manual_seed(1)) * torch.logspace(-4, 4, 5).unsqueeze(1)

    codes, scales = quantize_rows(rows)

    restored = codes.float() * scales
    # Half a step of three bits; numbers below e4m3's normal range (2^-6) lose up to half of its smallest, 2^-9.
    bound = torch.maximum(rows.abs() / 16, scales * 2.0**-10) * 1.001
    assert ((restored - rows).abs() <= bound).all()
    assert torch.equal(codes.float().abs().amax(1), torch.full((5,), FLOAT8_MAX))


def test_rows_of_zeros_and_of_huge_numbers_are_finite() -> None:
    codes, scales = quantize_rows(torch.stack((torch.zeros(16), torch.full((16,), 3e38))))

    assert torch.isfinite(codes.float() * scales).all()


def test_weights_are_padded_to_what_the_product_takes() -> None:
    kernel = ScaledRows(quantize_outputs(torch.randn(40, 24)), UnpackBuffer())

    assert kernel._codes.shape == (32, 48)
    assert kernel._scales.shape == (1, 48)


@pytest.mark.parametrize("kind", FLOAT8, ids=lambda kind: kind.name)
@pytest.mark.parametrize("shape", [(48, 64), (40, 88)], ids=["even", "padded"])
@pytest.mark.parametrize("num_rows", [1, 5])
def test_products_are_those_of_the_codes(
    kind: KernelKind[ChannelWeight], shape: tuple[int, int], num_rows: int
) -> None:
    if kind.name.startswith("triton") and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("on CPU through the interpreter; tests/gpu has the cards")
    if kind.name.startswith("triton"):
        pytest.importorskip("triton")
    torch.manual_seed(3)
    weight = quantize_outputs(torch.randn(shape) * torch.logspace(-2, 2, shape[0]).unsqueeze(1))
    inputs = torch.randn(num_rows, shape[1]) * torch.logspace(-2, 2, num_rows).unsqueeze(1)
    codes, scales = quantize_rows(inputs)
    read = codes.float() * scales if kind.name.startswith("scaled") else inputs.bfloat16().float()

    kernel = kind.build(weight, UnpackBuffer())
    result = QuantizedLinear(kernel, kernel).apply(inputs)

    for row, expected in zip(result, read @ weight.dequantize().t(), strict=True):
        assert (row - expected).norm() < 0.01 * expected.norm()
