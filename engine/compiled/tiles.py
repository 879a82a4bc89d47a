"""Tiles of products, kept in the processor's registers: a vector of outputs takes in one input after the other.

Written as LLVM's own instructions, so that sums are made in one order whatever else is computed beside them: a token
gets the same numbers alone, in a batch and among drafts. No sum is ever made across a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, reduce
from typing import Any, Literal, NamedTuple

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils

from engine.compiled import exponential
from engine.compiled.intrinsics import intrinsic

WeightKind = Literal["float32", "bfloat16", "int8"]

_FLOAT_BYTES = 4
_UPPER_HALF = 0xFFFF0000


def _lanes() -> int:
    """Floats in one of the processor's widest registers; on others than x86 two registers make one."""
    features = llvmlite.binding.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8


LANES = _lanes()
"""Sizes of inputs have to be multiples of it."""


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
    num_vectors: int, kind: WeightKind, registers: Registers, *, is_added: bool = False, is_cut: bool = False
) -> Callable[..., None]:
    """An intrinsic for tiles of that many vectors of outputs; `is_added`: to what is there, `is_cut`: see below."""

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
            _ProductTile(builder, num_vectors, kind, registers, is_added=is_added, is_cut=is_cut).build(*arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 10), generate

    found: Callable[..., None] = tile
    return found


class Tile:
    """What tiles share: vectors in memory by address."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self._vector = ir.VectorType(ir.FloatType(), LANES)

    def _zero(self) -> Any:
        return ir.Constant(self._vector, [0.0] * LANES)

    def _addresses(self, base: Any, step: Any, count: int) -> list[Any]:
        """base, base + step, …"""
        found = [base]
        for _ in range(count - 1):
            found.append(self._builder.add(found[-1], step))
        return found

    def _bytes(self, numbers: Any, size: int = _FLOAT_BYTES) -> Any:
        return self._builder.mul(numbers, ir.Constant(numbers.type, size))

    def _load(self, address: Any, what: Any) -> Any:
        return self._builder.load(self._builder.inttoptr(address, what.as_pointer()), align=_FLOAT_BYTES)

    def _store(self, value: Any, address: Any) -> None:
        self._builder.store(value, self._builder.inttoptr(address, value.type.as_pointer()), align=_FLOAT_BYTES)

    def _store_first(self, count: Any, value: Any, address: Any) -> None:
        """Store the first lanes of a vector."""
        builder = self._builder
        number = ir.IntType(32)
        lanes = ir.VectorType(number, LANES)
        wanted = self._spread(builder.trunc(count, number), lanes)
        mask = builder.icmp_signed("<", ir.Constant(lanes, list(range(LANES))), wanted)
        pointer = builder.inttoptr(address, value.type.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [value.type, pointer.type, number, mask.type])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
        builder.call(function, [value, pointer, ir.Constant(number, _FLOAT_BYTES), mask])

    def _fma(self, one: Any, other: Any, total: Any) -> Any:
        product = self._builder.fmul(one, other, flags=("contract",))
        return self._builder.fadd(total, product, flags=("contract",))

    def _load_pair(self, address: Any, step_bytes: Any, kind: WeightKind) -> tuple[Any, Any]:
        """Two inputs' LANES weights of a kind as float32."""
        if kind == "bfloat16":
            return self._load_halves(address)
        load = self._load_bytes if kind == "int8" else self._load_floats
        return load(address), load(self._builder.add(address, step_bytes))

    def _load_floats(self, address: Any) -> Any:
        return self._load(address, self._vector)

    def _load_bytes(self, address: Any) -> Any:
        builder = self._builder
        narrow, wide = (ir.VectorType(ir.IntType(bits), LANES) for bits in (8, 32))
        found = builder.load(builder.inttoptr(address, narrow.as_pointer()), align=1)
        return builder.sitofp(builder.sext(found, wide), self._vector)

    def _load_halves(self, address: Any) -> tuple[Any, Any]:
        """Two vectors of bfloat16 that stand in pairs; each is the upper half of a float32's bits."""
        builder, words = self._builder, ir.VectorType(ir.IntType(32), LANES)
        both = self._load(address, words)
        first = builder.shl(both, ir.Constant(words, [16] * LANES))
        second = builder.and_(both, ir.Constant(words, [_UPPER_HALF] * LANES))
        return builder.bitcast(first, self._vector), builder.bitcast(second, self._vector)

    def _broadcast(self, number: Any) -> Any:
        return self._spread(number, self._vector)

    def _spread(self, number: Any, kind: Any) -> Any:
        """A vector of a kind with the same number everywhere."""
        builder = self._builder
        first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

    def _all(self, number: float) -> Any:
        return ir.Constant(self._vector, [number] * LANES)

    def _larger(self, one: Any, other: Any) -> Any:
        """Of each pair; the other where one is no number."""
        return self._builder.select(self._builder.fcmp_ordered(">", one, other), one, other)

    def _exp(self, x: Any) -> Any:
        """e to numbers that are not above 0, as `engine.compiled.arithmetic.exp`; 0 where that would be its least."""
        builder = self._builder
        # Of no number this says no, and the rest makes none of it.
        is_least = builder.fcmp_ordered("<=", x, self._all(exponential.LOWEST))
        kind = ir.FunctionType(self._vector, [self._vector])
        floor = cgutils.get_or_insert_function(builder.module, kind, f"llvm.floor.v{LANES}f32")
        power = builder.call(floor, [self._fma(x, self._all(exponential.LOG2_E), self._all(0.5))])
        rest = self._fma(power, self._all(-exponential.LN2_HIGH), x)
        rest = self._fma(power, self._all(-exponential.LN2_LOW), rest)
        found = self._all(exponential.TERMS[0])
        for term in exponential.TERMS[1:]:
            found = self._fma(found, rest, self._all(term))
        found = self._fma(found, builder.fmul(rest, rest), builder.fadd(rest, self._all(1.0)))
        words = ir.VectorType(ir.IntType(32), LANES)
        bits = builder.add(builder.fptosi(power, words), ir.Constant(words, [127] * LANES))
        scale = builder.bitcast(builder.shl(bits, ir.Constant(words, [23] * LANES)), self._vector)
        return builder.select(is_least, self._zero(), builder.fmul(found, scale))

    def _folded(self, vector: Any, together: Callable[[Any, Any], Any]) -> Any:
        """One number of a vector's lanes: halves are taken together."""
        builder, width = self._builder, LANES
        while width > 1:
            width //= 2
            kind = ir.VectorType(ir.IntType(32), width)
            low, high = (ir.Constant(kind, list(range(first, first + width))) for first in (0, width))
            vector = together(*(builder.shuffle_vector(vector, vector, lanes) for lanes in (low, high)))
        return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))

    def _loop(
        self, first: Any, step: Any, end: Any, sums: list[Any], body: Callable[[Any, list[Any]], list[Any]]
    ) -> list[Any]:
        """The sums after a loop from `first` in steps below `end`, which is run once at least."""
        builder = self._builder
        before, loop, behind = builder.block, builder.append_basic_block("tile"), builder.append_basic_block("tiled")
        builder.branch(loop)
        builder.position_at_end(loop)
        place = builder.phi(first.type)
        place.add_incoming(first, before)
        running = []
        for value in sums:
            running.append(builder.phi(value.type))
            running[-1].add_incoming(value, before)
        found = body(place, running)
        following = builder.add(place, step)
        place.add_incoming(following, builder.block)
        for phi, value in zip(running, found, strict=True):
            phi.add_incoming(value, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, end), loop, behind)
        builder.position_at_end(behind)
        return found


class _ProductTile(Tile):
    """For each number of rows a loop over the inputs, two at a time."""

    def __init__(
        self, builder: Any, num_vectors: int, kind: WeightKind, registers: Registers, *, is_added: bool, is_cut: bool
    ) -> None:
        super().__init__(builder)
        self._num_vectors = num_vectors
        self._kind = kind
        self._num_sums = registers.num_sums
        self._most_rows = registers.most_rows
        self._is_added = is_added
        self._is_cut = is_cut

    def build(self, *arguments: Any) -> None:
        """Emit a loop for each number of rows, and the choice among them."""
        *place, num_rows, num_outputs = arguments
        builder = self._builder
        blocks = [builder.append_basic_block(f"rows_{count}") for count in range(1, self._most_rows + 1)]
        behind = builder.append_basic_block("tiled_rows")
        chosen = builder.switch(num_rows, blocks[-1])
        for count, block in enumerate(blocks, 1):
            if count < self._most_rows:
                chosen.add_case(ir.Constant(num_rows.type, count), block)
            builder.position_at_end(block)
            self._build_rows(count, num_outputs, *place)
            builder.branch(behind)
        builder.position_at_end(behind)

    def _build_rows(
        self,
        num_rows: int,
        num_outputs: Any,
        factors: Any,
        step_bytes: Any,
        vector_bytes: Any,
        inputs: Any,
        input_bytes: Any,
        count: Any,
        out: Any,
        out_bytes: Any,
    ) -> None:
        builder, integer = self._builder, count.type
        input_rows = self._addresses(inputs, input_bytes, num_rows)
        width = ir.Constant(integer, LANES * _FLOAT_BYTES)
        targets = [
            address
            for row in self._addresses(out, out_bytes, num_rows)
            for address in self._addresses(row, width, self._num_vectors)
        ]

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
                        into = part % self._num_sums * len(targets) + row * self._num_vectors + vector
                        added[into] = self._fma(of_row, factor, added[into])
            return added

        zeros = [self._zero()] * len(targets)
        first = [self._load(address, self._vector) for address in targets] if self._is_added else zeros
        start = first + zeros * (self._num_sums - 1)
        sums = self._loop(ir.Constant(integer, 0), ir.Constant(integer, 2), count, start, add_products)
        for index, address in enumerate(targets):
            total = reduce(builder.fadd, sums[index :: len(targets)])
            if self._is_cut:
                self._store_first(num_outputs, total, address)
            else:
                self._store(total, address)


_WIDTHS = ((4, WIDE), (2, PRODUCTS), (1, PRODUCTS))


def _all_products(kind: WeightKind) -> tuple[Callable[..., None], ...]:
    """Tiles of four, two and one vectors of outputs, and of a part of one."""
    whole = (_product_tile(count, kind, registers) for count, registers in _WIDTHS)
    return *whole, _product_tile(1, kind, PRODUCTS, is_cut=True)


def _all_sums(kind: WeightKind) -> tuple[Callable[..., None], ...]:
    """Tiles of four, two and one vectors that are added to."""
    return tuple(_product_tile(count, kind, registers, is_added=True) for count, registers in _WIDTHS)


product_4, product_2, product_1, product_part = _all_products("float32")
half_product_4, half_product_2, half_product_1, half_product_part = _all_products("bfloat16")
byte_product_4, byte_product_2, byte_product_1, byte_product_part = _all_products("int8")
score_2, score_1 = (_product_tile(count, "float32", SCORES) for count in (2, 1))
half_score_2, half_score_1 = (_product_tile(count, "bfloat16", SCORES) for count in (2, 1))
sum_4, sum_2, sum_1 = _all_sums("float32")
half_sum_4, half_sum_2, half_sum_1 = _all_sums("bfloat16")
