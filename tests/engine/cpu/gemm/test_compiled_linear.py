"""Packed weights are the only copy: torch multiplies by rows that are unpacked for it."""

from __future__ import annotations

import pytest
import torch

from engine.cpu.gemm import compiled_linear
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.gemm.tiles import LANES
from engine.models.raw_weights import RawWeight
from engine.quantization.weights import quantize_channels

SIZES = [(LANES, 2 * LANES), (3 * LANES + 5, 4 * LANES), (300, 2 * LANES)]


def raw(kind: str, num_outputs: int, num_inputs: int) -> tuple[RawWeight, torch.Tensor]:
    """Weights of a kind, and the float32 numbers that they mean."""
    torch.manual_seed(num_outputs)
    weight = torch.randn(num_outputs, num_inputs)
    bias = torch.randn(num_outputs)
    if kind.startswith("int8"):
        found = quantize_channels(weight)
        meant = found.codes * found.scales.unsqueeze(1)
        return RawWeight(found.codes, found.scales, bias, rounds_inputs=kind == "int8_dynamic"), meant
    dtype = getattr(torch, kind)
    return RawWeight(weight.to(dtype), None, bias), weight.to(dtype).float()


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16", "int8"])
@pytest.mark.parametrize(("num_outputs", "num_inputs"), SIZES)
def test_products_are_those_of_the_weights_before(
    kind: str, num_outputs: int, num_inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_linear, "_SCRATCH_NUMBERS", 64 * num_inputs)  # in parts of 64 rows
    packed, meant = raw(kind, num_outputs, num_inputs)
    linear = RecordMemory().linear(packed)
    inputs, total = torch.randn(7, num_inputs), torch.randn(7, num_outputs)
    assert packed.bias is not None
    expected = inputs @ meant.t() + packed.bias

    out = torch.empty(7, num_outputs)
    linear.into(inputs, out)
    summed = total.clone()
    linear.add_to(summed, inputs)

    assert torch.allclose(linear.apply(inputs), expected, atol=1e-4)
    assert torch.allclose(out, expected, atol=1e-4)
    assert torch.allclose(summed, total + expected, atol=1e-4)
    assert torch.equal(linear.weight.rows(0, num_outputs), meant)


@pytest.mark.parametrize(
    ("kind", "num_bytes"), [("float32", 4), ("bfloat16", 2), ("float16", 4), ("int8", 1), ("int8_dynamic", 1)]
)
def test_weights_are_packed_in_the_fewest_bytes_that_hold_them(kind: str, num_bytes: int) -> None:
    linear = RecordMemory().linear(raw(kind, 64, 64)[0])
    assert linear.record[2] == num_bytes
    assert linear.kind.startswith(kind.removesuffix("_dynamic") if num_bytes != 4 else "float32")


def test_rows_are_rounded_where_compiled_products_round_them() -> None:
    packed, meant = raw("int8_dynamic", 64, 128)
    inputs = torch.randn(5, 128)
    lengths = inputs.abs().amax(1, keepdim=True)
    rounded = (inputs * (127 / lengths)).round() * (lengths / 127)
    assert packed.bias is not None

    assert torch.allclose(RecordMemory().linear(packed).apply(inputs), rounded @ meant.t() + packed.bias, atol=1e-4)
