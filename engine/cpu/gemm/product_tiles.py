"""Tiles of products in the processor's registers: a vector of outputs accumulates one input after the other.

The code is LLVM instructions with a fixed order of sums. A token thus gets the same numbers alone, in a batch and
among draft tokens. No sum crosses lanes of a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, reduce
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from engine.cpu.gemm.tiles import FLOAT_BYTES, LANES, Tile, WeightKind
from engine.cpu.jit.intrinsics import intrinsic


class Registers(NamedTuple):
    """Division of registers among the sums of a tile of two vectors of outputs.

    Enough sums avoid waits for earlier products, and few enough avoid spills to memory.
    """

    num_sums: int
    """Number of partial sums of each output over interleaved inputs, added at the end."""
    most_rows: int


# 32 registers hold two sums each. With 16, two sums leave room for two rows only; a third row spills its weights,
# which halves the speed.
PRODUCTS = Registers(num_sums=2, most_rows=6) if LANES > 8 else Registers(num_sums=1, most_rows=5)
SCORES = PRODUCTS if LANES > 8 else Registers(num_sums=2, most_rows=2)
"""Registers of score tiles: queries are usually two or more, and a head's few numbers make latency decisive."""
WIDE = Registers(num_sums=PRODUCTS.num_sums, most_rows=2)
"""Registers of tiles of four vectors of outputs: with so few rows, two vectors would wait for their sums."""


@cache
def _product_tile(
    num_vectors: int, kind: WeightKind, registers: Registers, *, is_cut: bool = False
) -> Callable[..., None]:
    """Return an intrinsic for tiles of `num_vectors` vectors of outputs; `is_cut` allows a partial last vector."""

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

        Arguments are addresses and distances in bytes: `step_bytes` to the next input's factors, `vector_bytes` to
        their next vector. `count`, the number of inputs, is even. bfloat16 factors are interleaved in pairs of two
        inputs per output, `2 * step_bytes` before the next pair. All outputs of the vectors are written, or of a cut
        tile the first `num_outputs`.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _ProductTile(builder, num_vectors, kind, registers, is_cut=is_cut).build(*arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 10), generate

    found: Callable[..., None] = tile
    return found


def _block_tile(num_vectors: int, kind: WeightKind, registers: Registers) -> Callable[..., None]:
    """Return an intrinsic for tiles of `num_vectors` vectors of outputs whose factors lie in blocks."""

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
        next block.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _BlockTile(builder, num_vectors, kind, registers).build(*arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 11), generate

    found: Callable[..., None] = tile
    return found


class RowTile(Tile):
    """Code of some vectors of outputs for each possible number of rows."""

    def __init__(self, builder: Any, num_vectors: int, registers: Registers, *, is_cut: bool = False) -> None:
        """Create the code; `is_cut` writes only part of the last vector's outputs."""
        super().__init__(builder)
        self._num_vectors = num_vectors
        self._most_rows = registers.most_rows
        self._is_cut = is_cut

    def _store_outputs(self, value: Any, address: Any, num_outputs: Any) -> None:
        """Store a vector of outputs, or the first `num_outputs` of a cut one."""
        if self._is_cut:
            self._store_first(num_outputs, value, address)
        else:
            self._store(value, address)

    def _for_each_count(self, num_rows: Any, build_rows: Callable[[int], None]) -> None:
        """Emit the code for each number of rows, and the choice among them."""
        builder = self._builder
        blocks = [builder.append_basic_block(f"rows_{count}") for count in range(1, self._most_rows + 1)]
        behind = builder.append_basic_block("tiled_rows")
        chosen = builder.switch(num_rows, blocks[-1])
        for count, block in enumerate(blocks, 1):
            if count < self._most_rows:
                chosen.add_case(ir.Constant(num_rows.type, count), block)
            builder.position_at_end(block)
            build_rows(count)
            builder.branch(behind)
        builder.position_at_end(behind)

    def _targets(self, out: Any, out_bytes: Any, num_rows: int) -> list[Any]:
        """Return the addresses of the sums, row by row."""
        width = ir.Constant(out.type, LANES * FLOAT_BYTES)
        return [
            address
            for row in self._addresses(out, out_bytes, num_rows)
            for address in self._addresses(row, width, self._num_vectors)
        ]


class _SumTile(RowTile):
    """Code of sums of products, two inputs at a time."""

    def __init__(
        self, builder: Any, num_vectors: int, kind: WeightKind, registers: Registers, *, is_cut: bool = False
    ) -> None:
        super().__init__(builder, num_vectors, registers, is_cut=is_cut)
        self._kind = kind
        self._num_sums = registers.num_sums

    def _summed(
        self, factors: Any, step_bytes: Any, vector_bytes: Any, input_rows: list[Any], count: Any, totals: list[Any]
    ) -> list[Any]:
        """Return the totals, row by row, with the products of `count` inputs added."""
        builder, integer = self._builder, count.type

        def add_products(place: Any, sums: list[Any]) -> list[Any]:
            added = list(sums)
            first = self._addresses(
                builder.add(factors, builder.mul(place, step_bytes)), vector_bytes, self._num_vectors
            )
            pairs = [self._load_pair(address, step_bytes, self._kind) for address in first]
            for part in range(2):
                found = [pair[part] for pair in pairs]
                at = self._bytes(builder.add(place, ir.Constant(integer, part)))
                for row, address in enumerate(input_rows):
                    of_row = self._broadcast(self._load(builder.add(address, at), ir.FloatType()))
                    for vector, factor in enumerate(found):
                        into = part % self._num_sums * len(totals) + row * self._num_vectors + vector
                        added[into] = self._fma(of_row, factor, added[into])
            return added

        start = totals + [self._zero()] * len(totals) * (self._num_sums - 1)
        sums = self._loop(ir.Constant(integer, 0), ir.Constant(integer, 2), count, start, add_products)
        return [reduce(builder.fadd, sums[index :: len(totals)]) for index in range(len(totals))]


class _ProductTile(_SumTile):
    """Code of a loop over the inputs."""

    def build(
        self,
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
    ) -> None:
        """Emit the loop for each number of rows."""

        def build_rows(num_rows: int) -> None:
            input_rows = self._addresses(inputs, input_bytes, num_rows)
            targets = self._targets(out, out_bytes, num_rows)
            zeros = [self._zero()] * len(targets)
            totals = self._summed(factors, step_bytes, vector_bytes, input_rows, count, zeros)
            for total, address in zip(totals, targets, strict=True):
                self._store_outputs(total, address, num_outputs)

        self._for_each_count(num_rows, build_rows)


class _BlockTile(_SumTile):
    """Code of a loop over blocks and one over the inputs of each; sums stay in registers from block to block."""

    def build(
        self,
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

        def build_rows(num_rows: int) -> None:
            input_rows = self._addresses(inputs, input_bytes, num_rows)
            targets = self._targets(out, out_bytes, num_rows)

            def add_block(index: Any, totals: list[Any]) -> list[Any]:
                at = builder.add(table, self._bytes(index, integer.width // 8))
                factors = builder.add(pool, builder.mul(self._load(at, integer), block_bytes))
                done = self._bytes(builder.mul(index, block_size))
                rows = [builder.add(row, done) for row in input_rows]
                return self._summed(factors, step_bytes, width, rows, block_size, totals)

            start = [self._load(address, self._vector) for address in targets]
            totals = self._loop(ir.Constant(integer, 0), ir.Constant(integer, 1), num_blocks, start, add_block)
            for total, address in zip(totals, targets, strict=True):
                self._store(total, address)

        self._for_each_count(num_rows, build_rows)


_WIDTHS = ((4, WIDE), (2, PRODUCTS), (1, PRODUCTS))


def _all_products(kind: WeightKind) -> tuple[Callable[..., None], ...]:
    """Return tiles of four, two and one vectors of outputs, and of part of one."""
    whole = (_product_tile(count, kind, registers) for count, registers in _WIDTHS)
    return *whole, _product_tile(1, kind, PRODUCTS, is_cut=True)


def _all_sums(kind: WeightKind) -> tuple[Callable[..., None], ...]:
    """Return tiles of four, two and one vectors over blocks."""
    return tuple(_block_tile(count, kind, registers) for count, registers in _WIDTHS)


product_4, product_2, product_1, product_part = _all_products("float32")
half_product_4, half_product_2, half_product_1, half_product_part = _all_products("bfloat16")
byte_product_4, byte_product_2, byte_product_1, byte_product_part = _all_products("int8")
score_2, score_1 = (_product_tile(count, "float32", SCORES) for count in (2, 1))
half_score_2, half_score_1 = (_product_tile(count, "bfloat16", SCORES) for count in (2, 1))
sum_4, sum_2, sum_1 = _all_sums("float32")
half_sum_4, half_sum_2, half_sum_1 = _all_sums("bfloat16")
