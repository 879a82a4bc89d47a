"""Outputs of projections, with optional rounding of the inputs."""

from __future__ import annotations

from engine.cpu.gemm.arithmetic import add, floats, multiply, together
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
from engine.cpu.gemm.rounded_tiles import (
    HEADER_BYTES,
    ROUNDED,
    round_to_codes,
    round_to_floats,
    rounded_1,
    rounded_2,
    rounded_part,
)
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.compiler import compiled

_MOST_ROWS = ROUNDED.most_rows


@compiled
def prepared(projection, inputs, num_rows, room):
    """Return the address of input rows for `project`: the original, or rows in `room` that are rounded or cut."""
    if projection.rounds == 0 and projection.halves == 0 and projection.is_paired == 0:
        return inputs
    size, num_bytes = projection.num_inputs, prepared_bytes(projection)
    for row in range(num_rows):
        source, target = inputs + 4 * row * size, room + row * num_bytes
        if projection.halves != 0:
            cut_row(source, size, target)
        elif projection.is_paired != 0:
            round_to_pairs(source, size, target)
        elif projection.offsets != 0:
            round_to_codes(source, size, target)
        else:
            round_to_floats(source, size, target)
    return room


@compiled
def prepared_bytes(projection):
    """Return the distance between rows of prepared inputs, in bytes."""
    size = projection.num_inputs
    if projection.halves != 0:
        return CUT_BYTES * size
    if projection.is_paired != 0:
        return PAIR_BYTES // 2 * size
    return HEADER_BYTES + size if projection.offsets != 0 else 4 * size


@compiled
def project(projection, first, num_outputs, inputs, num_rows, out, out_stride):
    """Compute outputs of a projection from `first` on, a multiple of LANES, of rows of prepared inputs.

    On the matrix unit, rows up to the next multiple of TILE_ROWS are read and written too.
    """
    if projection.offsets != 0:
        _multiply_codes(projection, first, num_outputs, inputs, num_rows, out, out_stride)
    else:
        size, packed, num_bytes = projection.num_inputs, projection.packed, projection.weight_bytes
        if projection.halves != 0:
            _multiply_on_unit(projection.halves, size, first, num_outputs, inputs, num_rows, out, out_stride)
        elif projection.is_paired != 0:
            multiply_pairs(packed, first, num_outputs, inputs, num_rows, size, out, out_stride)
        else:
            multiply(packed, num_bytes, first, num_outputs, inputs, num_rows, size, out, out_stride)
        if projection.scales != 0:
            scales = floats(projection.scales + 4 * first, num_outputs)
            for row in range(num_rows):
                target = floats(out + 4 * row * out_stride, num_outputs)
                for i in range(num_outputs):
                    target[i] *= scales[i]
    if projection.bias != 0:
        for row in range(num_rows):
            add(out + 4 * row * out_stride, projection.bias + 4 * first, num_outputs)


@compiled
def _multiply_codes(projection, first, num_outputs, inputs, num_rows, out, out_stride):
    """Compute outputs of a projection of rows that are int8 codes."""
    size, num_bytes = projection.num_inputs, prepared_bytes(projection)
    vector, stride = LANES * size, 4 * out_stride
    output = 0
    while output < num_outputs:
        left, at = num_outputs - output, 4 * (first + output)
        weights = projection.packed + (first + output) * size
        offsets, scales = projection.offsets + at, projection.scales + at
        row = 0
        while row < num_rows:
            count = together(num_rows - row, _MOST_ROWS)
            of_rows, found = inputs + row * num_bytes, out + 4 * (row * out_stride + output)
            if left >= 2 * LANES:
                rounded_2(weights, vector, offsets, scales, of_rows, num_bytes, size, found, stride, count, 0)
            elif left >= LANES:
                rounded_1(weights, 0, offsets, scales, of_rows, num_bytes, size, found, stride, count, 0)
            else:
                rounded_part(weights, 0, offsets, scales, of_rows, num_bytes, size, found, stride, count, left)
            row += count
        output += 2 * LANES if left >= 2 * LANES else LANES


@compiled
def _multiply_on_unit(halves, size, first, num_outputs, inputs, num_rows, out, out_stride):
    """Compute outputs of cut rows on the matrix unit; `num_outputs` is a multiple of LANES."""
    row_bytes, stride, vector, num_blocks = CUT_BYTES * size, 4 * out_stride, 2 * LANES * size, size // TILE_INPUTS
    for output in range(0, num_outputs, 2 * LANES):
        weights = halves + 2 * (first + output) * size
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
