"""Products of each form of weights: kernels that multiply, and kernels that prepare their input rows.

A kernel is compiled when a model first has weights of its form.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.cpu.gemm import matrix_unit, pair_tiles
from engine.cpu.gemm.arithmetic import floats, view
from engine.cpu.gemm.code_rows import CODE_GROUP, GROUP_BYTES, round_to_codes
from engine.cpu.gemm.code_tiles import CODE_KINDS, code_multiplier
from engine.cpu.gemm.matrix_unit import (
    CUT_BYTES,
    TILE_INPUTS,
    TILE_ROWS,
    cut_row,
    unit_product_1_1,
    unit_product_1_2,
    unit_product_2_1,
    unit_product_2_2,
)
from engine.cpu.gemm.pair_tiles import PAIR_BYTES, multiply_pairs, round_to_pairs
from engine.cpu.gemm.product_tiles import multiplier
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.kernel import CompiledKernel, kernel
from engine.cpu.jit.layout import PROJECTION


class Product(NamedTuple):
    """Products of one form of weights."""

    multiply: CompiledKernel
    """Kernel of a projection's record, the first output, their number, input rows, their number, outputs, stride."""
    prepare: CompiledKernel | None = None
    """Kernel of input rows, their number and size, and room for prepared rows; None: rows stay as they are."""
    input_bytes: float = 4
    """Bytes of a prepared input."""

    def fields(self, num_inputs: int) -> tuple[int, int, int]:
        """Return the fields `product`, `preparation` and `row_bytes` of a PROJECTION record."""
        preparation = 0 if self.prepare is None else self.prepare.address
        return self.multiply.address, preparation, int(self.input_bytes * num_inputs)


_multiply_float32, _multiply_bfloat16 = multiplier("float32"), multiplier("bfloat16")
_multiply_int8 = multiplier("int8")
_multiply_codes_1, _multiply_codes_2, _multiply_codes_3, _multiply_codes_4, _multiply_codes_5 = map(
    code_multiplier, CODE_KINDS.values()
)
_ZERO_OF_8, _ZERO_OF_4 = CODE_KINDS[1].zero, CODE_KINDS[4].zero


@compiled
def _at(address):
    """Return the PROJECTION record at an address."""
    return view(address, 1, PROJECTION)[0]


@kernel
def _float32_product(projection, first, num_outputs, inputs, num_rows, out, out_stride):
    _multiply_float32(_at(projection), first, num_outputs, inputs, num_rows, out, out_stride)


@kernel
def _bfloat16_product(projection, first, num_outputs, inputs, num_rows, out, out_stride):
    _multiply_bfloat16(_at(projection), first, num_outputs, inputs, num_rows, out, out_stride)


@kernel
def _int8_product(projection, first, num_outputs, inputs, num_rows, out, out_stride):
    found = _at(projection)
    _multiply_int8(found, first, num_outputs, inputs, num_rows, out, out_stride)
    scales = floats(found.scales + 4 * first, num_outputs)
    for row in range(num_rows):
        target = floats(out + 4 * row * out_stride, num_outputs)
        for i in range(num_outputs):
            target[i] *= scales[i]


@kernel
def _pair_product(projection, first, num_outputs, rows, num_rows, out, out_stride):
    multiply_pairs(_at(projection), first, num_outputs, rows, num_rows, out, out_stride)


@kernel
def _code_product_1(projection, first, num_outputs, rows, num_rows, out, out_stride):
    _multiply_codes_1(_at(projection), first, num_outputs, rows, num_rows, out, out_stride)


@kernel
def _code_product_2(projection, first, num_outputs, rows, num_rows, out, out_stride):
    _multiply_codes_2(_at(projection), first, num_outputs, rows, num_rows, out, out_stride)


@kernel
def _code_product_3(projection, first, num_outputs, rows, num_rows, out, out_stride):
    _multiply_codes_3(_at(projection), first, num_outputs, rows, num_rows, out, out_stride)


@kernel
def _code_product_4(projection, first, num_outputs, rows, num_rows, out, out_stride):
    _multiply_codes_4(_at(projection), first, num_outputs, rows, num_rows, out, out_stride)


@kernel
def _code_product_5(projection, first, num_outputs, rows, num_rows, out, out_stride):
    _multiply_codes_5(_at(projection), first, num_outputs, rows, num_rows, out, out_stride)


@kernel
def _unit_product(projection, first, num_outputs, rows, num_rows, out, out_stride):
    multiply_on_unit(_at(projection), first, num_outputs, rows, num_rows, out, out_stride)


@compiled
def multiply_on_unit(projection, first, num_outputs, inputs, num_rows, out, out_stride):
    """Compute outputs of cut rows on the matrix unit; `num_outputs` is a multiple of LANES.

    Rows up to the next multiple of TILE_ROWS are read and written too.
    """
    size, stride = projection.num_inputs, 4 * out_stride
    row_bytes, vector, num_blocks = CUT_BYTES * size, 2 * LANES * size, size // TILE_INPUTS
    for output in range(0, num_outputs, 2 * LANES):
        weights = projection.packed + 2 * (first + output) * size
        has_two_vectors = num_outputs - output >= 2 * LANES
        for row in range(0, num_rows, 2 * TILE_ROWS):
            rows, found = inputs + row * row_bytes, out + 4 * (row * out_stride + output)
            if num_rows - row > TILE_ROWS and has_two_vectors:
                unit_product_2_2(rows, row_bytes, weights, vector, num_blocks, found, stride)
            elif num_rows - row > TILE_ROWS:
                unit_product_2_1(rows, row_bytes, weights, vector, num_blocks, found, stride)
            elif has_two_vectors:
                unit_product_1_2(rows, row_bytes, weights, vector, num_blocks, found, stride)
            else:
                unit_product_1_1(rows, row_bytes, weights, vector, num_blocks, found, stride)


@kernel
def _round_rows_to_pairs(inputs, num_rows, size, room):
    for row in range(num_rows):
        round_to_pairs(inputs + 4 * row * size, size, room + PAIR_BYTES // 2 * row * size)


@kernel
def _cut_rows(inputs, num_rows, size, room):
    for row in range(num_rows):
        cut_row(inputs + 4 * row * size, size, room + CUT_BYTES * row * size)


@kernel
def _round_rows_for_8_bits(inputs, num_rows, size, room):
    num_groups = size // CODE_GROUP
    for row in range(num_rows):
        round_to_codes(inputs + 4 * row * size, num_groups, _ZERO_OF_8, room + row * num_groups * GROUP_BYTES)


@kernel
def _round_rows_for_4_bits(inputs, num_rows, size, room):
    num_groups = size // CODE_GROUP
    for row in range(num_rows):
        round_to_codes(inputs + 4 * row * size, num_groups, _ZERO_OF_4, room + row * num_groups * GROUP_BYTES)


FLOAT32, BFLOAT16, INT8 = Product(_float32_product), Product(_bfloat16_product), Product(_int8_product)
PAIRS = Product(_pair_product, _round_rows_to_pairs, PAIR_BYTES // 2)
ON_UNIT = Product(_unit_product, _cut_rows, CUT_BYTES)
_CODE_BYTES = GROUP_BYTES / CODE_GROUP
CODES = {
    1: Product(_code_product_1, _round_rows_for_8_bits, _CODE_BYTES),
    2: Product(_code_product_2, _round_rows_for_8_bits, _CODE_BYTES),
    3: Product(_code_product_3, _round_rows_for_8_bits, _CODE_BYTES),
    4: Product(_code_product_4, _round_rows_for_4_bits, _CODE_BYTES),
    5: Product(_code_product_5, _round_rows_for_4_bits, _CODE_BYTES),
}
"""Products with weights as codes, by their kind (`engine.cpu.gemm.code_tiles`)."""


def all_products() -> list[Product]:
    """Return the products of all forms of weights that this processor multiplies."""
    return [
        FLOAT32,
        BFLOAT16,
        INT8,
        *CODES.values(),
        *([PAIRS] if pair_tiles.IS_THERE else []),
        *([ON_UNIT] if matrix_unit.IS_THERE else []),
    ]
