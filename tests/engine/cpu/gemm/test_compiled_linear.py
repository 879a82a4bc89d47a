"""Packed weights are the only copy: torch multiplies by rows that are unpacked for it."""

from __future__ import annotations

import pytest
import torch

from engine.cpu.gemm import compiled_linear
from engine.cpu.gemm.code_rows import CODE_GROUP
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.gemm.tiles import LANES
from engine.models.raw_weights import RawWeight
from engine.quantization.weights import quantize_channels

SIZES = [(num_outputs, size * CODE_GROUP) for num_outputs, size in ((LANES, 1), (3 * LANES + 5, 2), (300, 1))]


def raw(kind: str, num_outputs: int, num_inputs: int) -> tuple[RawWeight, torch.Tensor]:
    """Weights of a kind, and the float32 numbers that they mean."""
    torch.manual_seed(num_outputs)
    weight = torch.randn(num_outputs, num_inputs)
    bias = torch.randn(num_outputs)
    if kind == "int8":
        found = quantize_channels(weight)
        meant = found.codes * found.scales.unsqueeze(1)
        return RawWeight(found.codes, found.scales, bias), meant
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
    expected = (rounded(inputs) if kind == "int8" else inputs) @ meant.t() + packed.bias

    out = torch.empty(7, num_outputs)
    linear.into(inputs, out)
    summed = total.clone()
    linear.add_to(summed, inputs)

    assert torch.allclose(linear.apply(inputs), expected, atol=1e-4)
    assert torch.allclose(out, expected, atol=1e-4)
    assert torch.allclose(summed, total + expected, atol=1e-4)
    assert torch.equal(linear.weight.rows(0, num_outputs), meant)


@pytest.mark.parametrize(("kind", "num_bytes"), [("float32", 4), ("bfloat16", 2), ("float16", 4), ("int8", 1)])
def test_weights_are_packed_in_the_fewest_bytes_that_hold_them(kind: str, num_bytes: int) -> None:
    linear = RecordMemory().linear(raw(kind, 64, 64)[0])
    found = next(tensor for tensor in linear._owner._retained if tensor.data_ptr() == linear.record[0])  # type: ignore[attr-defined]
    assert found.itemsize == num_bytes
    assert linear.kind.startswith(kind if num_bytes != 4 else "float32")


def rounded(inputs: torch.Tensor) -> torch.Tensor:
    """Rows in groups of 255 even steps up to their largest magnitude."""
    groups = inputs.view(inputs.shape[0], -1, CODE_GROUP)
    lengths = groups.abs().amax(2, keepdim=True)
    return ((groups * (127 / lengths)).round() * (lengths / 127)).flatten(1)


def grouped(bits: int, group_size: int, num_inputs: int = 2 * CODE_GROUP, **others: torch.Tensor) -> RawWeight:
    """Codes of a checkpoint, of 40 outputs."""
    torch.manual_seed(bits)
    codes = torch.randint(0, 1 << bits, (40, num_inputs)).to(torch.uint8)
    scales, zeros = torch.rand(2, 40, num_inputs // group_size)
    return RawWeight(codes, None, torch.randn(40), scales + 0.5, 8 * zeros, bits=bits, **others)


@pytest.mark.parametrize("raw", [grouped(6, 16), grouped(4, 16), grouped(4, 32, order=torch.randperm(2 * CODE_GROUP))])
def test_other_groups_become_those_of_integer_products(raw: RawWeight) -> None:
    linear, meant = RecordMemory().linear(raw), raw.dequantized().weight
    steps = (meant.amax() - meant.amin()) / 255
    assert linear.kind.startswith("int8 in groups")
    assert (linear.weight.rows(0, 40) - meant).abs().max() < steps


@pytest.mark.parametrize("rounds_inputs", [True, False])
def test_codes_stay_codes_only_where_inputs_may_be_rounded(rounds_inputs: bool) -> None:
    raw, inputs = grouped(4, CODE_GROUP), torch.randn(3, 2 * CODE_GROUP)
    linear = RecordMemory(rounds_inputs=rounds_inputs).linear(raw)
    assert raw.bias is not None
    meant = linear.weight.rows(0, 40)
    expected = (rounded(inputs) if rounds_inputs else inputs) @ meant.t() + raw.bias
    assert linear.kind.startswith("int4 in groups" if rounds_inputs else "float32")
    assert linear.rounds_inputs is rounds_inputs
    assert torch.allclose(linear.apply(inputs), expected, atol=1e-4)
    assert torch.allclose(meant, raw.dequantized().weight, atol=1e-2)


def test_codes_of_inputs_that_fill_no_group_are_dequantized() -> None:
    raw = grouped(4, 16, num_inputs=48)
    assert RecordMemory().linear(raw).kind == "float32"
