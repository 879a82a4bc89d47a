"""Tiles of products, kept in the processor's registers: a vector of outputs takes in one input after the other.

Written as LLVM's own instructions, so that sums are made in one order whatever else is computed beside them: a token
gets the same numbers alone, in a batch and among drafts. No sum is ever made across a vector.
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
    """How the sums of a tile of two vectors of outputs share registers: enough of them that no product waits for the
    one before, few enough that none goes to memory."""

    num_sums: int
    """For each output, over every so manyth input; they are added up behind the last."""
    most_rows: int


# With 32 registers there is room for two sums each. With 16, two sums leave it for two rows; a third had its weights
# written to memory and back, at half the speed.
PRODUCTS = Registers(num_sums=2, most_rows=6) if LANES > 8 else Registers(num_sums=1, most_rows=5)
SCORES = PRODUCTS if LANES > 8 else Registers(num_sums=2, most_rows=2)
"""Queries are two at least as a rule, and a head has few numbers to sum: what counts is how soon a sum is there."""
WIDE = Registers(num_sums=PRODUCTS.num_sums, most_rows=2)
"""Of four vectors of outputs: so few rows would leave the processor waiting for the sums of two."""


@cache
def _product_tile(
    num_vectors: int, kind: WeightKind, registers: Registers, *, is_cut: bool = False
) -> Callable[..., None]:
    """An intrinsic for tiles of that many vectors of outputs; `is_cut`: see below."""

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
        """out[row, output] = Σ inputs[row, i] * factors[i, output] of up to `registers.most_rows` rows.

        By addresses, and how many bytes lie between neighbours: to the factors of the next input `step_bytes`, to their
        next vector `vector_bytes`. `count`: of inputs, an even number. Factors in bfloat16 stand in pairs: those of two
        inputs for the same output, `2 * step_bytes` before the next two. All outputs of the vectors are written, unless
        the tile is cut: then the first `num_outputs`.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _ProductTile(builder, num_vectors, kind, registers, is_cut=is_cut).build(*arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 10), generate

    found: Callable[..., None] = tile
    return found


def _block_tile(num_vectors: int, kind: WeightKind, registers: Registers) -> Callable[..., None]:
    """An intrinsic for tiles of that many vectors of outputs, whose factors lie in blocks."""

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
        """out[row, output] += Σ inputs[row, i] * factors[i, output] of up to `registers.most_rows` rows.

        By addresses: `block_size` factors after another, an even number, of `num_blocks` blocks, whose numbers stand in
        the table; block 0 lies at `pool`, others so many bytes behind. Each block's sums are folded before the next.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _BlockTile(builder, num_vectors, kind, registers).build(*arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 11), generate

    found: Callable[..., None] = tile
    return found


class RowTile(Tile):
    """Some vectors of outputs of each number of rows that there may be."""

    def __init__(self, builder: Any, num_vectors: int, registers: Registers, *, is_cut: bool = False) -> None:
        """`is_cut`: only some of the last vector's outputs are written."""
        super().__init__(builder)
        self._num_vectors = num_vectors
        self._most_rows = registers.most_rows
        self._is_cut = is_cut

    def _store_outputs(self, value: Any, address: Any, num_outputs: Any) -> None:
        """Store a vector of outputs, or the first `num_outputs` of one that is cut."""
        if self._is_cut:
            self._store_first(num_outputs, value, address)
        else:
            self._store(value, address)

    def _for_each_count(self, num_rows: Any, build_rows: Callable[[int], None]) -> None:
        """Emit what is done for each number of rows, and the choice among them."""
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
        """Where the sums go, row after row."""
        width = ir.Constant(out.type, LANES * FLOAT_BYTES)
        return [
            address
            for row in self._addresses(out, out_bytes, num_rows)
            for address in self._addresses(row, width, self._num_vectors)
        ]


class _SumTile(RowTile):
    """Sums of products, two inputs at a time."""

    def __init__(
        self, builder: Any, num_vectors: int, kind: WeightKind, registers: Registers, *, is_cut: bool = False
    ) -> None:
        super().__init__(builder, num_vectors, registers, is_cut=is_cut)
        self._kind = kind
        self._num_sums = registers.num_sums

    def _summed(
        self, factors: Any, step_bytes: Any, vector_bytes: Any, input_rows: list[Any], count: Any, totals: list[Any]
    ) -> list[Any]:
        """The totals, row after row, with the products of so many inputs added."""
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
    """A loop over the inputs."""

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
        """Emit it for each number of rows."""

        def build_rows(num_rows: int) -> None:
            input_rows = self._addresses(inputs, input_bytes, num_rows)
            targets = self._targets(out, out_bytes, num_rows)
            zeros = [self._zero()] * len(targets)
            totals = self._summed(factors, step_bytes, vector_bytes, input_rows, count, zeros)
            for total, address in zip(totals, targets, strict=True):
                self._store_outputs(total, address, num_outputs)

        self._for_each_count(num_rows, build_rows)


class _BlockTile(_SumTile):
    """A loop over blocks and one over the inputs of each; sums stay in registers from block to block."""

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
        """Emit both for each number of rows."""
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
    """Tiles of four, two and one vectors of outputs, and of a part of one."""
    whole = (_product_tile(count, kind, registers) for count, registers in _WIDTHS)
    return *whole, _product_tile(1, kind, PRODUCTS, is_cut=True)


def _all_sums(kind: WeightKind) -> tuple[Callable[..., None], ...]:
    """Tiles of four, two and one vectors over blocks."""
    return tuple(_block_tile(count, kind, registers) for count, registers in _WIDTHS)


product_4, product_2, product_1, product_part = _all_products("float32")
half_product_4, half_product_2, half_product_1, half_product_part = _all_products("bfloat16")
byte_product_4, byte_product_2, byte_product_1, byte_product_part = _all_products("int8")
score_2, score_1 = (_product_tile(count, "float32", SCORES) for count in (2, 1))
half_score_2, half_score_1 = (_product_tile(count, "bfloat16", SCORES) for count in (2, 1))
sum_4, sum_2, sum_1 = _all_sums("float32")
half_sum_4, half_sum_2, half_sum_1 = _all_sums("bfloat16")
