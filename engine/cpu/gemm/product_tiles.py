"""Tiles of products in float32, by the micro-kernel: projections, scores of keys, and weighted sums of values.

Each kind of factors has tiles of its own, so that a model's kernels hold the code of its own kinds alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from engine.cpu.gemm.arithmetic import together
from engine.cpu.gemm.micro_kernel import (
    WEIGHT_BYTES,
    FloatOperands,
    MicroKernel,
    Registers,
    WeightKind,
    are_prefetched,
)
from engine.cpu.gemm.tiles import FLOAT_BYTES, LANES
from engine.cpu.jit.compiler import Compiled, inner
from engine.cpu.jit.intrinsics import intrinsic

# 32 registers hold two sums each. With 16, two sums leave room for two rows only; a third row spills its weights,
# which halves the speed.
PRODUCTS = Registers(num_sums=2, most_rows=6) if LANES > 8 else Registers(num_sums=1, most_rows=5)
SCORES = PRODUCTS if LANES > 8 else Registers(num_sums=2, most_rows=2)
"""Registers of score tiles: queries are usually two or more, and a head's few numbers make latency decisive."""
WIDE = Registers(num_sums=PRODUCTS.num_sums, most_rows=2)
"""Registers of tiles of four vectors of outputs: with so few rows, two vectors would wait for their sums."""


def product_tile(
    kind: WeightKind, num_vectors: int, registers: Registers, *, are_keys: bool = False, is_cut: bool = False
) -> Callable[..., None]:
    """Return an intrinsic for tiles of `num_vectors` vectors of outputs.

    Args:
        kind: Kind of the factors.
        num_vectors: Number of vectors.
        registers: Registers of the tile.
        are_keys: True for keys, which lie in blocks that the caller prefetches.
        is_cut: True for a tile whose last vector may be partial.
    """

    @intrinsic
    def tile(
        typing_context: Any,
        factors: Any,
        step_bytes: Any,
        vector_bytes: Any,
        inputs: Any,
        input_bytes: Any,
        count: Any,
        out: Any,
        out_bytes: Any,
        num_rows: Any,
        num_outputs: Any,
    ) -> Any:
        """Compute out[row, output] = Σ inputs[row, i] * factors[i, output] of up to `registers.most_rows` rows.

        Arguments are addresses, and distances in bytes as `FloatOperands` takes them. `count`, the number of inputs, is
        even. All outputs of the vectors are written, or of a cut tile the first `num_outputs`.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            factors, step, vector, inputs, input_bytes, count, out, out_bytes, num_rows, num_outputs = arguments
            kernel = MicroKernel(builder, num_vectors, registers, is_cut=is_cut)

            def totals_of(rows: list[Any], targets: list[Any]) -> list[Any]:
                is_prefetched = not are_keys and are_prefetched(len(rows))
                operands = FloatOperands(builder, kind, factors, step, vector, is_prefetched=is_prefetched)
                return kernel.summed(operands, rows, count, [operands.zero] * len(targets))

            kernel.build(num_rows, (inputs, input_bytes), (out, out_bytes), totals_of, num_outputs)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 10), generate

    found: Callable[..., None] = tile
    return found


def block_tile(kind: WeightKind, num_vectors: int, registers: Registers) -> Callable[..., None]:
    """Return an intrinsic for tiles of `num_vectors` vectors of outputs whose factors of a kind lie in blocks."""

    @intrinsic
    def tile(
        typing_context: Any,
        pool: Any,
        table: Any,
        block_bytes: Any,
        step_bytes: Any,
        inputs: Any,
        input_bytes: Any,
        block_size: Any,
        out: Any,
        out_bytes: Any,
        num_rows: Any,
        num_blocks: Any,
    ) -> Any:
        """Compute out[row, output] += Σ inputs[row, i] * factors[i, output] of up to `registers.most_rows` rows.

        Arguments are addresses. Each of the `num_blocks` blocks listed in the table has `block_size` factors, an even
        number. Block 0 lies at `pool`, others at multiples of `block_bytes`. Each block's sums are added up before the
        next block; they stay in registers from block to block.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _BlockTile(builder, num_vectors, registers).build_blocks(kind, *arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 11), generate

    found: Callable[..., None] = tile
    return found


class _BlockTile(MicroKernel):
    """Generator of a loop over blocks around the loop over the inputs of each."""

    def build_blocks(
        self,
        kind: WeightKind,
        pool: Any,
        table: Any,
        block_bytes: Any,
        step_bytes: Any,
        inputs: Any,
        input_bytes: Any,
        block_size: Any,
        out: Any,
        out_bytes: Any,
        num_rows: Any,
        num_blocks: Any,
    ) -> None:
        """Emit both loops for each number of rows."""
        builder, integer = self._builder, num_blocks.type
        width = ir.Constant(integer, LANES * FLOAT_BYTES)

        def totals_of(rows: list[Any], targets: list[Any]) -> list[Any]:
            def add_block(index: Any, totals: list[Any]) -> list[Any]:
                at = builder.add(table, self._bytes(index, integer.width // 8))
                factors = builder.add(pool, builder.mul(self._load(at, integer), block_bytes))
                done = self._bytes(builder.mul(index, block_size))
                operands = FloatOperands(builder, kind, factors, step_bytes, width)
                return self.summed(operands, [builder.add(row, done) for row in rows], block_size, totals)

            start = [self._load(address, self._vector) for address in targets]
            return self._loop(ir.Constant(integer, 0), ir.Constant(integer, 1), num_blocks, start, add_block)

        self.build(num_rows, (inputs, input_bytes), (out, out_bytes), totals_of)


def multiplier(kind: WeightKind) -> Compiled:
    """Return the loops over tiles of weights of a kind."""
    tile_4, tile_2, tile_1 = (product_tile(kind, count, WIDE if count == 4 else PRODUCTS) for count in (4, 2, 1))
    tile_part = product_tile(kind, 1, PRODUCTS, is_cut=True)
    weight_bytes, most_rows, wide_rows = WEIGHT_BYTES[kind], PRODUCTS.most_rows, WIDE.most_rows

    @inner
    def multiply(projection, first, num_outputs, inputs, num_rows, out, out_stride):
        """Compute out[row, output] = inputs[row] · weights[first + output]; `first` is a multiple of LANES.

        Inputs are [rows, size]. The size is an even number.
        """
        size = projection.num_inputs
        of_outputs, step = projection.packed + weight_bytes * first * size, LANES * weight_bytes
        vector, row_bytes, stride, output = step * size, 4 * size, 4 * out_stride, 0
        while output < num_outputs:
            left = num_outputs - output
            width = 4 if num_rows <= wide_rows and left >= 4 * LANES else 2 if left >= 2 * LANES else 1
            row = 0
            while row < num_rows:
                count = together(num_rows - row, most_rows)
                rows, found = inputs + row * row_bytes, out + 4 * (row * out_stride + output)
                if width == 4:
                    tile_4(of_outputs, step, vector, rows, row_bytes, size, found, stride, count, 0)
                elif width == 2:
                    tile_2(of_outputs, step, vector, rows, row_bytes, size, found, stride, count, 0)
                elif left >= LANES:
                    tile_1(of_outputs, step, 0, rows, row_bytes, size, found, stride, count, 0)
                else:
                    tile_part(of_outputs, step, 0, rows, row_bytes, size, found, stride, count, left)
                row += count
            of_outputs += weight_bytes * width * LANES * size
            output += width * LANES

    return multiply
