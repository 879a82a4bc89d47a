"""Weight-only Triton kernels through the interpreter: the products of the weights they were given, in any company."""

from __future__ import annotations

import os

import pytest
import torch

pytest.importorskip("triton")

from engine.kernels.weight_only import (
    byte_product,
    int4_product,
    num_segments,
    pack_int4,
    pack_scales,
    quantize_rows_fused,
)
from engine.quantization.float8 import quantize_rows
from engine.quantization.kernels import UnpackBuffer
from engine.quantization.triton_kernels import TRITON_GROUPS, TritonBytes, TritonInt4
from engine.quantization.weights import GroupWeight, quantize_channels, quantize_groups

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="on CPU through the interpreter; tests/gpu has the cards"
)


def relative_error(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Length of the difference beside the length of what is expected."""
    return float((result - expected).norm() / expected.norm())


def int4(weight: GroupWeight, inputs: torch.Tensor, segments: int) -> torch.Tensor:
    packed, scales = pack_int4(weight.codes), pack_scales(weight.scales, weight.zeros)
    return int4_product(inputs, packed, scales, group_size=weight.group_size, segments=segments)


def as_read(weight: GroupWeight) -> torch.Tensor:
    """The weight with scales and zeros as the kernel has them, float32 [out, in]."""
    scales, zeros = weight.scales.bfloat16().float(), weight.zeros.half().float()
    return GroupWeight(weight.codes, scales, zeros, weight.bits, weight.order).dequantize()


@pytest.mark.parametrize("group_size", [32, 96])
@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_int4_equals_the_dequantized_product(group_size: int, segments: int, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    weight = quantize_groups(torch.randn(70, 288), group_size, has_whole_zeros=True)
    inputs = torch.randn(3, 288).to(dtype)

    result = int4(weight, inputs, segments)

    assert relative_error(result, inputs.float() @ as_read(weight).t()) < (1e-5 if dtype == torch.float32 else 1e-3)
    assert relative_error(result, inputs.float() @ weight.dequantize().t()) < 3e-3


def test_zeros_and_codes_as_checkpoints_have_them() -> None:
    # GPTQ's zeros go from 1 to 16, AWQ's from 0 to 15.
    torch.manual_seed(2)
    codes = torch.randint(0, 16, (20, 64), dtype=torch.uint8)
    weight = GroupWeight(codes, torch.rand(20, 2) + 0.1, torch.randint(0, 17, (20, 2)).float(), 4)
    inputs = torch.randn(2, 64).half()

    result, scales = TritonInt4(weight, UnpackBuffer()).multiply(inputs)

    assert scales is None
    assert relative_error(result, inputs.float() @ as_read(weight).t()) < 2e-3


def test_int8_and_fp8_equal_the_dequantized_product() -> None:
    torch.manual_seed(3)
    weight, inputs = quantize_channels(torch.randn(70, 130)), torch.randn(3, 130)
    expected = inputs @ weight.dequantize().t()

    assert relative_error(TritonBytes(weight, UnpackBuffer()).multiply(inputs)[0], expected) < 1e-5
    assert relative_error(byte_product(inputs, weight.codes, weight.scales, segments=2), expected) < 1e-5

    codes, scales = quantize_rows(torch.randn(40, 64))
    inputs = torch.randn(2, 64).half()
    result = byte_product(inputs, codes, scales.flatten(), segments=1)
    assert relative_error(result, inputs.float() @ (codes.float() * scales).t()) < 1e-5


def test_a_row_among_others_gets_the_numbers_it_gets_alone() -> None:
    torch.manual_seed(4)
    weight, inputs = quantize_groups(torch.randn(64, 256), 64), torch.randn(5, 256).half()

    together = int4(weight, inputs, 2)

    assert torch.equal(together, torch.cat([int4(weight, row.unsqueeze(0), 2) for row in inputs]))


def test_rows_are_quantized_as_torch_does_it() -> None:
    torch.manual_seed(5)
    rows = torch.cat((torch.randn(3, 40) * torch.logspace(-3, 3, 3).unsqueeze(1), torch.zeros(1, 40)))
    codes, scales = quantize_rows(rows)

    fused_codes, fused_scales = quantize_rows_fused(rows)

    assert torch.allclose(fused_scales, scales)
    # The interpreter cuts off where a card rounds: one step of three bits. It loses the carry into a power of two.
    can_compare = codes.view(torch.uint8) & 7 != 0
    assert can_compare.sum() > 90
    assert torch.allclose(fused_codes.float()[can_compare], codes.float()[can_compare], rtol=2.0**-3, atol=2.0**-9)


@pytest.mark.parametrize(
    ("num_out", "num_in", "expected"),
    [(4096, 4096, 8), (28672, 4096, 1), (14336, 4096, 2), (1024, 4096, 8), (64, 128, 1)],
)
def test_inputs_are_cut_where_outputs_alone_leave_processors_idle(num_out: int, num_in: int, expected: int) -> None:
    assert num_segments(num_out, num_in, 132) == expected


@pytest.mark.parametrize(
    ("num_out", "num_in", "expected"), [(28672, 4096, 1), (6144, 4096, 4), (4096, 14336, 4), (4096, 4096, 4)]
)
def test_int4_weights_are_cut_as_was_quickest_on_an_h200(num_out: int, num_in: int, expected: int) -> None:
    assert num_segments(num_out, num_in, 132, is_int4=True) == expected


def test_a_cpu_never_gets_them() -> None:
    assert not TRITON_GROUPS[0].can_run(quantize_groups(torch.randn(64, 64), 32))
