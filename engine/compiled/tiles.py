"""Tiles of dot products and of weighted sums, kept in the processor's registers.

Written as LLVM's own instructions, so that sums are made in one order whatever else is computed beside them: a token
gets the same numbers alone, in a batch and among drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils

from engine.compiled import exponential
from engine.compiled.intrinsics import emit_prefetch, intrinsic

WeightKind = Literal["float32", "bfloat16", "int8"]

_FLOAT_BYTES = 4
_WEIGHT_BYTES: dict[WeightKind, int] = {"float32": 4, "bfloat16": 2, "int8": 1}


def _lanes() -> int:
    """Floats in one of the processor's widest registers; on others than x86 two registers make one."""
    features = llvmlite.binding.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8


LANES = _lanes()
"""Sizes of inputs have to be multiples of it."""


def _dot_tile(num_rows: int, num_outputs: int, kind: WeightKind) -> Callable[..., None]:
    """An intrinsic for a tile of that many rows and outputs."""

    @intrinsic
    def tile(
        typing_context: Any,
        weights: Any,
        weight_stride: Any,
        inputs: Any,
        input_stride: Any,
        size: Any,
        out: Any,
        out_stride: Any,
    ) -> Any:
        """out[row, output] = inputs[row] · weights[output]; addresses, strides in numbers, size a multiple of LANES."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _DotTile(builder, num_rows, num_outputs, kind).build(*arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 7), generate

    found: Callable[..., None] = tile
    return found


def _sum_tile(num_rows: int, num_vectors: int) -> Callable[..., None]:
    """An intrinsic for weighted sums of that many rows and vectors."""

    @intrinsic
    def tile(
        typing_context: Any,
        values: Any,
        stride: Any,
        weights: Any,
        weight_stride: Any,
        count: Any,
        out: Any,
        out_stride: Any,
    ) -> Any:
        """out[row] += Σ weights[row, i] * values[i]; `count` values, an even number; addresses, strides in numbers."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _SumTile(builder, num_rows, num_vectors).build(*arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 7), generate

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

    def _fma(self, one: Any, other: Any, total: Any) -> Any:
        product = self._builder.fmul(one, other, flags=("contract",))
        return self._builder.fadd(total, product, flags=("contract",))

    def _load_weights(self, address: Any, kind: WeightKind) -> Any:
        """LANES weights of a kind as float32."""
        if kind == "float32":
            return self._load(address, self._vector)
        builder, num_bytes = self._builder, self.weight_bytes(kind)
        narrow, wide = (ir.VectorType(ir.IntType(bits), LANES) for bits in (8 * num_bytes, 32))
        found = builder.load(builder.inttoptr(address, narrow.as_pointer()), align=num_bytes)
        if kind == "int8":
            return builder.sitofp(builder.sext(found, wide), self._vector)
        # The upper half of a float32's bits.
        return builder.bitcast(builder.shl(builder.zext(found, wide), ir.Constant(wide, [16] * LANES)), self._vector)

    @staticmethod
    def weight_bytes(kind: WeightKind) -> int:
        """Of one weight."""
        return _WEIGHT_BYTES[kind]

    def _broadcast(self, number: Any) -> Any:
        builder = self._builder
        first = builder.insert_element(ir.Constant(self._vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

    def _all(self, number: float) -> Any:
        return ir.Constant(self._vector, [number] * LANES)

    def _larger(self, one: Any, other: Any) -> Any:
        """Of each pair; the other where one is no number."""
        return self._builder.select(self._builder.fcmp_ordered(">", one, other), one, other)

    def _exp(self, x: Any) -> Any:
        """e to numbers that are not above 0, as `engine.compiled.arithmetic.exp`; 0 where that would be its least."""
        builder = self._builder
        is_some = builder.fcmp_ordered(">", x, self._all(exponential.LOWEST))
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
        return builder.select(is_some, builder.fmul(found, scale), self._zero())

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


class _DotTile(Tile):
    """A loop over the inputs with a vector of partial sums for each pair, then their totals."""

    def __init__(self, builder: Any, num_rows: int, num_outputs: int, kind: WeightKind) -> None:
        super().__init__(builder)
        self._num_rows = num_rows
        self._num_outputs = num_outputs
        self._kind = kind

    def build(
        self, weights: Any, weight_stride: Any, inputs: Any, input_stride: Any, size: Any, out: Any, out_stride: Any
    ) -> None:
        """Emit loop and totals."""
        builder, integer = self._builder, size.type
        weight_bytes = _WEIGHT_BYTES[self._kind]
        weight_rows = self._addresses(weights, self._bytes(weight_stride, weight_bytes), self._num_outputs)
        # The next tile's: what is fetched earlier is often another thread's in the end.
        ahead = self._bytes(weight_stride, weight_bytes * self._num_outputs)
        input_rows = self._addresses(inputs, self._bytes(input_stride), self._num_rows)

        def add_products(place: Any, sums: list[Any]) -> list[Any]:
            at = self._bytes(place, weight_bytes)
            found = [self._load_weights(builder.add(address, at), self._kind) for address in weight_rows]
            # What the processor fetches by itself comes too late for large weights.
            for address in weight_rows:
                emit_prefetch(builder, builder.add(builder.add(address, ahead), at))
            at = self._bytes(place)
            added = []
            for row, address in enumerate(input_rows):
                of_row = self._load(builder.add(address, at), self._vector)
                for output, of_output in enumerate(found):
                    added.append(self._fma(of_row, of_output, sums[row * self._num_outputs + output]))
            return added

        sums = [self._zero()] * (self._num_rows * self._num_outputs)
        sums = self._loop(ir.Constant(integer, 0), ir.Constant(integer, LANES), size, sums, add_products)
        rows_at_once = max(1, LANES // self._num_outputs)
        addresses = self._addresses(out, self._bytes(out_stride), self._num_rows)
        for first in range(0, self._num_rows, rows_at_once):
            rows = addresses[first : first + rows_at_once]
            start = first * self._num_outputs
            totals = self._totals(sums[start : start + len(rows) * self._num_outputs])
            for index, address in enumerate(rows):
                lanes = list(range(index * self._num_outputs, (index + 1) * self._num_outputs))
                self._store(totals if len(rows) == 1 else self._shuffled(totals, totals, lanes), address)

    def _totals(self, vectors: list[Any]) -> Any:
        """One vector of the sums over each vector's lanes: halves are added to halves, two vectors at a time.

        Every total is made in the same order, whatever vectors it shares the work with.
        """
        width = LANES
        while width > 1:
            if len(vectors) > 1:
                vectors = [self._folded(a, b, width) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
            else:
                vectors = [self._folded(vectors[0], None, width)]
            width //= 2
        assert len(vectors) == 1
        return vectors[0]

    def _folded(self, first: Any, second: Any, width: int) -> Any:
        """Each group of `width` lanes folded to half of it, of one vector or of two side by side."""
        num_lanes = first.type.count * (1 if second is None else 2)
        low = [start + lane for start in range(0, num_lanes, width) for lane in range(width // 2)]
        high = [lane + width // 2 for lane in low]
        other = first if second is None else second
        return self._builder.fadd(self._shuffled(first, other, low), self._shuffled(first, other, high))

    def _shuffled(self, first: Any, second: Any, lanes: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
        return self._builder.shuffle_vector(first, second, mask)


class _SumTile(Tile):
    """A loop over values, two at a time into sums of their own."""

    def __init__(self, builder: Any, num_rows: int, num_vectors: int) -> None:
        super().__init__(builder)
        self._num_rows = num_rows
        self._num_vectors = num_vectors

    def build(
        self, values: Any, stride: Any, weights: Any, weight_stride: Any, count: Any, out: Any, out_stride: Any
    ) -> None:
        """Emit the loop and what it adds to."""
        builder, integer = self._builder, count.type
        width = ir.Constant(integer, LANES * _FLOAT_BYTES)
        weight_rows = self._addresses(weights, self._bytes(weight_stride), self._num_rows)
        targets = [
            address
            for row in self._addresses(out, self._bytes(out_stride), self._num_rows)
            for address in self._addresses(row, width, self._num_vectors)
        ]
        step = self._bytes(stride)

        def add_values(place: Any, sums: list[Any]) -> list[Any]:
            added = list(sums)
            for part in range(2):
                index = builder.add(place, ir.Constant(integer, part))
                base = builder.add(values, builder.mul(index, step))
                found = [
                    self._load(address, self._vector) for address in self._addresses(base, width, self._num_vectors)
                ]
                at = self._bytes(index)
                for row, address in enumerate(weight_rows):
                    weight = self._broadcast(self._load(builder.add(address, at), ir.FloatType()))
                    for vector, value in enumerate(found):
                        into = part * len(targets) + row * self._num_vectors + vector
                        added[into] = self._fma(weight, value, added[into])
            return added

        start = [self._load(address, self._vector) for address in targets] + [self._zero()] * len(targets)
        sums = self._loop(ir.Constant(integer, 0), ir.Constant(integer, 2), count, start, add_values)
        for index, address in enumerate(targets):
            self._store(builder.fadd(sums[index], sums[index + len(targets)]), address)


dot_4x4, dot_2x8, dot_2x4, dot_1x8, dot_1x4 = (
    _dot_tile(rows, outputs, "float32") for rows, outputs in ((4, 4), (2, 8), (2, 4), (1, 8), (1, 4))
)
half_dot_4x4, half_dot_2x4, half_dot_1x8, half_dot_1x4 = (
    _dot_tile(rows, outputs, "bfloat16") for rows, outputs in ((4, 4), (2, 4), (1, 8), (1, 4))
)
byte_dot_4x4, byte_dot_2x4, byte_dot_1x8, byte_dot_1x4 = (
    _dot_tile(rows, outputs, "int8") for rows, outputs in ((4, 4), (2, 4), (1, 8), (1, 4))
)
sum_2x2, sum_1x2, sum_2x1, sum_1x1 = (_sum_tile(rows, vectors) for rows, vectors in ((2, 2), (1, 2), (2, 1), (1, 1)))
