"""Tiles of products in float32, by the micro-kernel: projections, scores of keys, and weighted sums of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from engine.cpu.gemm.micro_kernel import FloatOperands, MicroKernel, Registers, WeightKind, are_prefetched
from engine.cpu.gemm.tiles import FLOAT_BYTES, LANES
from engine.cpu.jit.intrinsics import intrinsic

# 32 registers hold two sums each. With 16, two sums leave room for two rows only; a third row spills its weights,
# which halves the speed.
PRODUCTS = Registers(num_sums=2, most_rows=6) if LANES > 8 else Registers(num_sums=1, most_rows=5)
SCORES = PRODUCTS if LANES > 8 else Registers(num_sums=2, most_rows=2)
"""Registers of score tiles: queries are usually two or more, and a head's few numbers make latency decisive."""
WIDE = Registers(num_sums=PRODUCTS.num_sums, most_rows=2)
"""Registers of tiles of four vectors of outputs: with so few rows, two vectors would wait for their sums."""
_WEIGHTS: tuple[WeightKind, ...] = ("int8", "bfloat16", "float32")
_KEYS: tuple[WeightKind, ...] = ("bfloat16", "float32")


def _product_tile(
    num_vectors: int, registers: Registers, kinds: tuple[WeightKind, ...] = _WEIGHTS, *, is_cut: bool = False
) -> Callable[..., None]:
    """Return an intrinsic for tiles of `num_vectors` vectors of outputs; `is_cut` allows a partial last vector."""

    @intrinsic
    def tile(
        typing_context: Any,
        factor_bytes: Any,
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

        Arguments are addresses, and distances in bytes as `FloatOperands` takes them. `factor_bytes` is the size of a
        factor. `count`, the number of inputs, is even. All outputs of the vectors are written, or of a cut tile the
        first `num_outputs`.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            size, factors, step, vector, inputs, input_bytes, count, out, out_bytes, num_rows, num_outputs = arguments
            kernel = MicroKernel(builder, num_vectors, registers, is_cut=is_cut)
            are_weights = "int8" in kinds  # keys lie in blocks, which the caller prefetches

            def build(kind: WeightKind) -> None:
                def totals_of(rows: list[Any], targets: list[Any]) -> list[Any]:
                    is_prefetched = are_weights and are_prefetched(len(rows))
                    operands = FloatOperands(builder, kind, factors, step, vector, is_prefetched=is_prefetched)
                    return kernel.summed(operands, rows, count, [operands.zero] * len(targets))

                kernel.build(num_rows, (inputs, input_bytes), (out, out_bytes), totals_of, num_outputs)

            kernel.build_each_kind(size, kinds, build)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 11), generate

    found: Callable[..., None] = tile
    return found


def _block_tile(num_vectors: int, registers: Registers) -> Callable[..., None]:
    """Return an intrinsic for tiles of `num_vectors` vectors of outputs whose factors lie in blocks."""

    @intrinsic
    def tile(
        typing_context: Any,
        factor_bytes: Any,
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
            _BlockTile(builder, num_vectors, registers).build_blocks(*arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 12), generate

    found: Callable[..., None] = tile
    return found


class _BlockTile(MicroKernel):
    """Generator of a loop over blocks around the loop over the inputs of each."""

    def build_blocks(
        self,
        factor_bytes: Any,
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

        def build(kind: WeightKind) -> None:
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

        self.build_each_kind(factor_bytes, _KEYS, build)


product_4, product_2, product_1 = _product_tile(4, WIDE), _product_tile(2, PRODUCTS), _product_tile(1, PRODUCTS)
product_part = _product_tile(1, PRODUCTS, is_cut=True)
score_2, score_1 = _product_tile(2, SCORES, _KEYS), _product_tile(1, SCORES, _KEYS)
sum_4, sum_2, sum_1 = _block_tile(4, WIDE), _block_tile(2, PRODUCTS), _block_tile(1, PRODUCTS)
