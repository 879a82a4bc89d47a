"""fp8 codes and scales; the product itself needs a GPU."""

from __future__ import annotations

import torch

from engine.quantization.float8 import FLOAT8_MAX, Float8Linear, quantize_rows


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
    linear = Float8Linear(torch.randn(40, 24))

    assert linear._codes.shape == (32, 48)
    assert linear._scales.shape == (1, 48)
