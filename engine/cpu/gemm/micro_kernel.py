"""The micro-kernel of all products on vector units: rows times vectors of outputs, with the sums in registers.

Its code is LLVM instructions with a fixed order of sums. A token thus gets the same numbers alone, in a batch and among
draft tokens. No sum crosses lanes of a vector. `ProductOperands` says how factors are loaded and accumulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, Literal, NamedTuple

from llvmlite import ir

from engine.cpu.gemm.tiles import FLOAT_BYTES, LANES, Tile
from engine.cpu.jit.intrinsics import emit_prefetch

WEIGHT_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}
WeightKind = Literal["float32", "bfloat16", "int8"]
_BYTES_AHEAD = 1024
"""Distance in bytes by which weights are prefetched: products of that many last about as long as a read from memory."""
_ROWS_AHEAD = 3
"""Number of rows from which weights are prefetched; with fewer, the loop is short enough for many reads at once."""


def are_prefetched(num_rows: int) -> bool:
    """Return whether a tile of so many rows prefetches its weights."""
    return num_rows >= _ROWS_AHEAD


class Registers(NamedTuple):
    """Division of registers among the sums of a tile of two vectors of outputs.

    Enough sums avoid waits for earlier products, and few enough avoid spills to memory.
    """

    num_sums: int
    """Number of partial sums of each output over interleaved inputs, added at the end."""
    most_rows: int


class ProductOperands(Tile):
    """Emitter of a product's operands: factors of all outputs, and one row's input in every lane."""

    num_inputs: int
    """Number of inputs of one pass of the loop."""
    zero: Any

    def parts(self, place: Any, num_vectors: int) -> Iterator[tuple[Any, Sequence[Any]]]:
        """Yield the distance of a part's inputs from the beginning of rows, in bytes, and its vectors of factors."""
        raise NotImplementedError

    def of_row(self, address: Any) -> Any:
        """Return a row's inputs of one part in every lane."""
        raise NotImplementedError

    def accumulate(self, total: Any, row: Any, vector: Any) -> Any:
        """Return the total with a product added."""
        raise NotImplementedError

    def join(self, one: Any, other: Any) -> Any:
        """Return the sum of two totals."""
        raise NotImplementedError

    def prefetch(self, addresses: Sequence[Any]) -> None:
        """Emit the prefetch of what lies a little behind the addresses."""
        for address in addresses:
            emit_prefetch(self._builder, self._builder.add(address, ir.Constant(address.type, _BYTES_AHEAD)))


class FloatOperands(ProductOperands):
    """Factors in float32, bfloat16 or int8, accumulated in float32, two inputs a pass."""

    num_inputs = 2

    def __init__(
        self,
        builder: Any,
        kind: WeightKind,
        factors: Any,
        step_bytes: Any,
        vector_bytes: Any,
        *,
        is_prefetched: bool = False,
    ) -> None:
        """Take factors at an address, `step_bytes` to the next input's and `vector_bytes` to the next vector.

        Those in bfloat16 are interleaved in pairs of two inputs, `2 * step_bytes` before the next pair.
        """
        super().__init__(builder)
        self._kind, self._factors, self._is_prefetched = kind, factors, is_prefetched
        self._step_bytes, self._vector_bytes = step_bytes, vector_bytes
        self.zero = self._zero()

    def parts(self, place: Any, num_vectors: int) -> Iterator[tuple[Any, Sequence[Any]]]:
        """Yield the first inputs' factors, then the second ones'."""
        builder = self._builder
        first = builder.add(self._factors, builder.mul(place, self._step_bytes))
        addresses = self._addresses(first, self._vector_bytes, num_vectors)
        if self._is_prefetched:
            self.prefetch(addresses)
        pairs = [self._pair(address) for address in addresses]
        for part in range(2):
            yield self._bytes(builder.add(place, ir.Constant(place.type, part))), [pair[part] for pair in pairs]

    def of_row(self, address: Any) -> Any:
        """Return one input."""
        return self._broadcast(self._load(address, ir.FloatType()))

    def accumulate(self, total: Any, row: Any, vector: Any) -> Any:
        """Return total + row * vector."""
        return self._fma(row, vector, total)

    def join(self, one: Any, other: Any) -> Any:
        """Return the sum of two vectors."""
        return self._builder.fadd(one, other)

    def _pair(self, address: Any) -> tuple[Any, Any]:
        """Load two inputs' factors as float32."""
        if self._kind == "bfloat16":
            return self._load_halves(address)
        load = self._load_bytes if self._kind == "int8" else self._load_floats
        return load(address), load(self._builder.add(address, self._step_bytes))


class MicroKernel(Tile):
    """Generator of the code for some vectors of outputs, once for each possible number of rows."""

    def __init__(self, builder: Any, num_vectors: int, registers: Registers, *, is_cut: bool = False) -> None:
        """Create the generator; `is_cut` writes only part of the last vector's outputs."""
        super().__init__(builder)
        self._num_vectors = num_vectors
        self._registers = registers
        self._is_cut = is_cut

    def build(
        self,
        num_rows: Any,
        rows: tuple[Any, Any],
        out: tuple[Any, Any],
        totals_of: Callable[[list[Any], list[Any]], list[Any]],
        num_outputs: Any = None,
    ) -> None:
        """Emit the code of each number of rows, and the choice among them.

        Args:
            num_rows: Number of rows, at most that of the registers.
            rows: Address of the first row, and the distance to the next one in bytes.
            out: Address and distance of the rows of outputs.
            totals_of: Emits the totals, row by row, for addresses of rows and of where the totals will be stored.
            num_outputs: Number of outputs of a cut vector.
        """

        def build_rows(count: int) -> None:
            of_rows, targets = self._addresses(*rows, count), self._targets(*out, count)
            for total, target in zip(totals_of(of_rows, targets), targets, strict=True):
                if self._is_cut:
                    self._store_first(num_outputs, total, target)
                else:
                    self._store(total, target)

        most = self._registers.most_rows
        self.choose(num_rows, {count: partial(build_rows, count) for count in range(1, most + 1)})

    def choose(self, number: Any, cases: dict[int, Callable[[], None]]) -> None:
        """Emit the code of each case, and the choice among them; another number counts as the last case."""
        builder = self._builder
        blocks = {case: builder.append_basic_block(f"case_{case}") for case in cases}
        behind = builder.append_basic_block("behind_cases")
        chosen = builder.switch(number, blocks[max(blocks)])
        for case, block in blocks.items():
            if case != max(blocks):
                chosen.add_case(ir.Constant(number.type, case), block)
            builder.position_at_end(block)
            cases[case]()
            builder.branch(behind)
        builder.position_at_end(behind)

    def summed(
        self, operands: ProductOperands, rows: list[Any], count: Any, totals: list[Any], num_sums: int | None = None
    ) -> list[Any]:
        """Emit the loop over `count` inputs; return the totals, row by row, with their products added."""
        num_sums = num_sums or self._registers.num_sums

        def add_products(place: Any, sums: list[Any]) -> list[Any]:
            added = list(sums)
            for part, (at, vectors) in enumerate(operands.parts(place, self._num_vectors)):
                for row, address in enumerate(rows):
                    of_row = operands.of_row(self._builder.add(address, at))
                    for vector, factor in enumerate(vectors):
                        into = part % num_sums * len(totals) + row * self._num_vectors + vector
                        added[into] = operands.accumulate(added[into], of_row, factor)
            return added

        start = totals + [operands.zero] * len(totals) * (num_sums - 1)
        step = ir.Constant(count.type, operands.num_inputs)
        sums = self._loop(ir.Constant(count.type, 0), step, count, start, add_products)
        return [reduce(operands.join, sums[index :: len(totals)]) for index in range(len(totals))]

    def _targets(self, out: Any, out_bytes: Any, num_rows: int) -> list[Any]:
        """Return the addresses of the totals, row by row."""
        width = ir.Constant(out.type, LANES * FLOAT_BYTES)
        return [
            address
            for row in self._addresses(out, out_bytes, num_rows)
            for address in self._addresses(row, width, self._num_vectors)
        ]
