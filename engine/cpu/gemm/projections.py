"""Outputs of projections: their inputs are prepared, and a kernel multiplies them."""

from __future__ import annotations

from engine.cpu.gemm.arithmetic import add
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.kernel import address_of, call_at


@compiled
def prepared(projection, inputs, num_rows, room):
    """Return the address of input rows for `project`: the original, or rows in `room` that are rounded or cut."""
    if projection.preparation == 0:
        return inputs
    call_at(projection.preparation, (inputs, num_rows, projection.num_inputs, room))
    return room


@compiled
def project(projection, first, num_outputs, inputs, num_rows, out, out_stride):
    """Compute outputs of a projection from `first` on, a multiple of LANES, of rows of prepared inputs.

    On the matrix unit, rows up to the next multiple of TILE_ROWS are read and written too.
    """
    call_at(projection.product, (address_of(projection), first, num_outputs, inputs, num_rows, out, out_stride))
    if projection.bias != 0:
        for row in range(num_rows):
            add(out + 4 * row * out_stride, projection.bias + 4 * first, num_outputs)
