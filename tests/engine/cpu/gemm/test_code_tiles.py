"""Integer products of rows of codes: exact in whole numbers, equal alone and in a batch, on every processor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.cpu.gemm.code_rows import CODE_GROUP
from engine.cpu.gemm.code_tiles import CODE_KINDS, HAS_DOT_PRODUCT, code_multiplier, code_registers
from engine.cpu.gemm.code_weights import is_packable, pack_codes
from engine.cpu.gemm.projections import prepared, project
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.layout import PROJECTION
from engine.models.raw_weights import RawWeight
from engine.quantization.weights import quantize_channels, quantize_groups

GROUPS = 3
KINDS = sorted(CODE_KINDS)
MOST_ROWS = code_registers().most_rows


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def weight_of(kind: int, num_outputs: int, num_groups: int = GROUPS) -> tuple[RawWeight, torch.Tensor]:
    """A weight of the kind, and its float32 values."""
    bits, has_scales, has_minima = CODE_KINDS[kind]
    size, bias = num_groups * CODE_GROUP, numbers(num_outputs, seed=3)
    if not has_scales:
        channels = quantize_channels(numbers(num_outputs, size))
        return RawWeight(channels.codes, channels.scales, bias), channels.dequantize()
    random = np.random.default_rng(2)
    codes = torch.from_numpy(random.integers(0, 1 << bits, (num_outputs, size)).astype(np.uint8))
    scales = torch.from_numpy(random.uniform(0.5, 1.5, (num_outputs, num_groups)).astype(np.float16)).float()
    scales *= torch.exp2(torch.arange(num_outputs) % 7 - 20.0).unsqueeze(1)
    zeros = torch.full_like(scales, float(1 << (bits - 1)))
    if has_minima:
        zeros += torch.from_numpy(random.integers(-4, 4, zeros.shape)).float()
    minima = -zeros * scales
    if has_minima:
        powers = torch.exp2(torch.floor(torch.log2(scales.amax(1, keepdim=True))))
        minima = (minima / powers).half().float() * powers
    values = codes.view(num_outputs, num_groups, -1) * scales.unsqueeze(2) + minima.unsqueeze(2)
    raw = RawWeight(codes, None, bias, group_scales=scales, group_zeros=zeros, bits=bits)
    return raw, values.flatten(1)


def rounded(inputs: torch.Tensor) -> torch.Tensor:
    """Rows in groups of 255 even steps."""
    groups = inputs.view(inputs.shape[0], -1, CODE_GROUP)
    scales = groups.abs().amax(2, keepdim=True).clamp(min=1e-30) / 127
    return groups.div(scales).round().mul(scales).flatten(1)


class Product:
    """One projection's record and the memory behind it."""

    def __init__(self, raw: RawWeight) -> None:
        self.memory = RecordMemory()
        linear = self.memory.linear(raw)
        self.kind, self.num_outputs = linear.kind, raw.weight.shape[0]
        self.record = np.array([linear.record], dtype=PROJECTION)[0]

    def apply(self, inputs: torch.Tensor, first: int = 0) -> torch.Tensor:
        """Outputs from the first on."""
        num_rows, count = inputs.shape[0], self.num_outputs - first
        room = np.zeros(num_rows * int(self.record["row_bytes"]), dtype=np.uint8)
        out = torch.full((num_rows, count + 3), 7.0)
        ready = prepared(self.record, inputs.data_ptr(), num_rows, room.ctypes.data)
        project(self.record, first, count, ready, num_rows, out.data_ptr(), count + 3)
        assert (out[:, count:] == 7.0).all(), "nothing is written behind the last output"
        return out[:, :count]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_rows", [1, 2, MOST_ROWS, MOST_ROWS + 1, 26])
@pytest.mark.parametrize("num_outputs", [3, LANES, 2 * LANES, 3 * LANES + 4])
def test_outputs_are_products_of_rows_rounded_in_groups(kind: int, num_rows: int, num_outputs: int) -> None:
    raw, values = weight_of(kind, num_outputs + LANES)
    assert raw.bias is not None
    inputs = numbers(num_rows, GROUPS * CODE_GROUP, seed=2) * torch.logspace(-6, 6, num_rows)[:, None]
    expected = rounded(inputs).double() @ values.double().T
    product = Product(raw)

    assert product.kind == CODE_KINDS[kind].name
    for first in (0, LANES):
        found = (product.apply(inputs, first) - raw.bias[first:]).double()
        # Where the rounding to steps is a tie, either step is right.
        bound = 1e-3 * values.abs().amax() * inputs.abs().amax(1, keepdim=True) + 1e-6
        assert ((found - expected[:, first:]).abs() <= bound).all()


@pytest.mark.skipif(not HAS_DOT_PRODUCT, reason="this processor has no instruction for products of codes")
@pytest.mark.parametrize("kind", KINDS)
def test_a_processor_without_the_instruction_computes_the_same_numbers(kind: int) -> None:
    """Rows are of both signs, and one has the largest codes alone."""
    raw, _ = weight_of(kind, 3 * LANES + 4)
    product, num_rows = Product(replace(raw, bias=None)), 5
    inputs, found = numbers(num_rows, GROUPS * CODE_GROUP, seed=5), torch.zeros(num_rows, product.num_outputs)
    inputs[0] = 9.0
    room = np.zeros(num_rows * int(product.record["row_bytes"]), dtype=np.uint8)
    rows = prepared(product.record, inputs.data_ptr(), num_rows, room.ctypes.data)

    multiply_in_pairs = code_multiplier(CODE_KINDS[kind], has_dot_product=False)
    multiply_in_pairs(product.record, 0, product.num_outputs, rows, num_rows, found.data_ptr(), product.num_outputs)

    assert found.abs().min() > 0
    assert torch.equal(found, product.apply(inputs))


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_numbers_alone_and_in_a_batch(kind: int) -> None:
    raw, _ = weight_of(kind, 3 * LANES)
    inputs, product = numbers(13, GROUPS * CODE_GROUP), Product(raw)

    together = product.apply(inputs)

    assert all(torch.equal(product.apply(inputs[row : row + 1])[0], together[row]) for row in range(13))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_codes_of_long_rows_are_summed_without_a_remainder(sign: float) -> None:
    size = 128 * CODE_GROUP
    found = Product(RawWeight(torch.full((LANES, size), 127, dtype=torch.int8), torch.ones(LANES), None)).apply(
        torch.full((2, size), 4.0 * sign)
    )

    assert torch.allclose(found, torch.tensor(4.0 * sign * 127 * size), rtol=1e-6)


def test_a_row_of_zeros_gives_zeros() -> None:
    for kind in KINDS:
        raw, _ = weight_of(kind, LANES)
        raw = replace(raw, bias=None)
        assert not Product(raw).apply(torch.zeros(2, GROUPS * CODE_GROUP)).any()


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_makes_none_of_its_own_row_alone(odd: float) -> None:
    raw, _ = weight_of(5, 2 * LANES)
    inputs = numbers(3, GROUPS * CODE_GROUP)
    inputs[1, CODE_GROUP + 3] = odd
    product = Product(raw)

    found = product.apply(inputs)

    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], product.apply(inputs[[0, 2]].contiguous()))


def test_an_outlier_costs_the_precision_of_its_group_alone() -> None:
    raw, values = weight_of(1, 2 * LANES)
    assert raw.bias is not None
    inputs = numbers(1, GROUPS * CODE_GROUP)
    values = values.clone()
    plain = Product(RawWeight(raw.weight, raw.scales, None)).apply(inputs) - inputs @ values.T
    inputs[0, 5] = 4000.0
    spoiled = Product(RawWeight(raw.weight, raw.scales, None)).apply(inputs) - inputs @ values.T

    rest = inputs[:, CODE_GROUP:] @ values[:, CODE_GROUP:].T
    assert spoiled.abs().max() > plain.abs().max()
    assert (rounded(inputs)[:, CODE_GROUP:] - inputs[:, CODE_GROUP:]).abs().max() < 0.02
    assert rest.abs().max() > 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_packed_weights_unpack_to_their_values(kind: int) -> None:
    raw, values = weight_of(kind, LANES + 3)
    assert torch.allclose(pack_codes(raw).rows(0, LANES + 3), values, rtol=1e-3)


@pytest.mark.parametrize(("bits", "zero", "packed_bits"), [(3, 4.0, 4), (4, 8.0, 4), (5, 16.0, 8), (6, 32.0, 8)])
def test_codes_of_few_bits_move_to_the_middle(bits: int, zero: float, packed_bits: int) -> None:
    codes = torch.randint(0, 1 << bits, (LANES, 2 * CODE_GROUP)).to(torch.uint8)
    scales = torch.rand(LANES, 2) + 0.1
    raw = RawWeight(codes, None, None, group_scales=scales, group_zeros=torch.full((LANES, 2), zero), bits=bits)

    packed = pack_codes(raw)

    expected = ((codes.view(LANES, 2, -1) - zero) * scales.unsqueeze(2)).flatten(1)
    assert CODE_KINDS[packed.kind] == (packed_bits, True, False)
    assert torch.allclose(packed.rows(0, LANES), expected, rtol=1e-3)


def test_groups_of_one_number_keep_it() -> None:
    found = quantize_groups(torch.full((LANES, CODE_GROUP), -0.75), CODE_GROUP)
    raw = RawWeight(found.codes, None, None, group_scales=found.scales, group_zeros=found.zeros, bits=4)
    assert torch.allclose(pack_codes(raw).rows(0, LANES), torch.tensor(-0.75), rtol=1e-3)


@pytest.mark.parametrize(
    ("size", "num_groups", "is_so"), [(64, 2, True), (64, 1, True), (64, 4, False), (48, 1, False)]
)
def test_groups_are_multiples_of_those_of_rows(size: int, num_groups: int, is_so: bool) -> None:
    scales = torch.ones(LANES, num_groups)
    codes = torch.zeros(LANES, size, dtype=torch.uint8)
    assert is_packable(RawWeight(codes, None, None, group_scales=scales, group_zeros=scales, bits=4)) is is_so
    assert not is_packable(RawWeight(torch.ones(LANES, size), None, None))
