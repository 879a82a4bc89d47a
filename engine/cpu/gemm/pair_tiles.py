"""Tiles of products of bfloat16 with sums in float32: an instruction adds the products of two inputs (AVX-512 BF16).

Rows are rounded to bfloat16 first, as weights of such checkpoints are. Twice as many products follow from an
instruction as in float32, and weights need no conversion. Sums have a fixed order, so a token gets the same numbers
alone, in a batch and in a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils

from engine.cpu.gemm.arithmetic import put, together
from engine.cpu.gemm.micro_kernel import MicroKernel, ProductOperands, Registers, are_prefetched
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.intrinsics import intrinsic

PAIR_BYTES = 4
"""Size of two bfloat16."""
_PAIRS = Registers(num_sums=1, most_rows=12)
"""Registers of tiles: as many rows as fit read the weights once, and the sums of two vectors suffice for few rows."""
_MOST_ROWS = _PAIRS.most_rows
_NUM_PARTS = 2
"""Number of pairs of inputs of one pass of the loop."""


def _is_there() -> bool:
    features = llvmlite.binding.get_host_cpu_features()
    return LANES == 16 and bool(features.get("avx512bf16"))


IS_THERE = _is_there()
"""True if this processor has the instruction."""


class _Half(ir.Type):
    """LLVM's bfloat16, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Half)

    def __hash__(self) -> int:
        return hash(_Half)


class _PairOperands(ProductOperands):
    """Factors and rows in pairs of bfloat16."""

    num_inputs = 2 * _NUM_PARTS

    def __init__(self, builder: Any, weights: Any, vector_bytes: Any, *, is_prefetched: bool) -> None:
        """Take weights [count / 2, LANES, 2] at an address, `vector_bytes` to the next vector."""
        super().__init__(builder)
        self._weights, self._vector_bytes, self._is_prefetched = weights, vector_bytes, is_prefetched
        self._halves = ir.VectorType(_Half(), 2 * LANES)
        self.zero = self._zero()

    def parts(self, place: Any, num_vectors: int) -> Iterator[tuple[Any, Sequence[Any]]]:
        """Yield two inputs' factors for each part."""
        builder = self._builder
        at = builder.add(self._weights, self._bytes(place, PAIR_BYTES // 2 * LANES))
        for part in range(_NUM_PARTS):
            addresses = self._addresses(at, self._vector_bytes, num_vectors)
            if self._is_prefetched:
                self.prefetch(addresses)
            found = [self._load(address, self._words) for address in addresses]
            first = builder.add(place, ir.Constant(place.type, 2 * part))
            yield self._bytes(first, PAIR_BYTES // 2), found
            at = builder.add(at, ir.Constant(place.type, PAIR_BYTES * LANES))

    def of_row(self, address: Any) -> Any:
        """Return two inputs in every lane."""
        return self._spread(self._load(address, ir.IntType(32)), self._words)

    def accumulate(self, total: Any, row: Any, vector: Any) -> Any:
        """Return total + Σ of two products, in each lane."""
        builder = self._builder
        kind = ir.FunctionType(self._vector, [self._vector, self._halves, self._halves])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.avx512bf16.dpbf16ps.{32 * LANES}")
        return builder.call(function, [total, *(builder.bitcast(one, self._halves) for one in (row, vector))])

    def join(self, one: Any, other: Any) -> Any:
        """Return the sum of two vectors."""
        return self._builder.fadd(one, other)


def _pair_tile(num_vectors: int, *, is_cut: bool = False) -> Callable[..., None]:
    """Return an intrinsic for tiles of `num_vectors` vectors of outputs; `is_cut` allows a partial last vector."""

    @intrinsic
    def tile(
        typing_context: Any,
        weights: Any,
        vector_bytes: Any,
        rows: Any,
        row_bytes: Any,
        count: Any,
        out: Any,
        out_bytes: Any,
        num_rows: Any,
        num_outputs: Any,
    ) -> Any:
        """Compute out[row, output] = Σ rows[row, i] * weights[i, output] of up to twelve rows.

        Arguments are addresses, and distances in bytes. `count`, the number of inputs, is a multiple of four. All
        outputs of the vectors are written, or of a cut tile the first `num_outputs`.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            weights, vector, rows, row_bytes, count, out, out_bytes, num_rows, num_outputs = arguments
            kernel = MicroKernel(builder, num_vectors, _PAIRS, is_cut=is_cut)

            def totals_of(of_rows: list[Any], targets: list[Any]) -> list[Any]:
                is_prefetched = are_prefetched(len(of_rows))
                operands = _PairOperands(builder, weights, vector, is_prefetched=is_prefetched)
                return kernel.summed(operands, of_rows, count, [operands.zero] * len(targets))

            if IS_THERE:
                kernel.build(num_rows, (rows, row_bytes), (out, out_bytes), totals_of, num_outputs)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 9), generate

    found: Callable[..., None] = tile
    return found


_pair_2, _pair_1, _pair_part = _pair_tile(2), _pair_tile(1), _pair_tile(1, is_cut=True)


@compiled
def round_to_pairs(row, size, out):
    """Round a row of float32 to bfloat16."""
    put(row, 1, size, out, 1, 2)


@compiled
def multiply_pairs(projection, first, num_outputs, rows, num_rows, out, out_stride):
    """Compute out[row, output] = rows[row] · weights[first + output]; `first` is a multiple of LANES.

    Rows are bfloat16 [rows, size].
    """
    size = projection.num_inputs
    weights, vector, row_bytes, stride = (
        projection.packed + 2 * first * size,
        2 * LANES * size,
        2 * size,
        4 * out_stride,
    )
    output = 0
    while output < num_outputs:
        left = num_outputs - output
        width = 2 if left >= 2 * LANES else 1
        row = 0
        while row < num_rows:
            count = together(num_rows - row, _MOST_ROWS)
            of_rows, found = rows + row * row_bytes, out + 4 * (row * out_stride + output)
            if width == 2:
                _pair_2(weights, vector, of_rows, row_bytes, size, found, stride, count, 0)
            elif left >= LANES:
                _pair_1(weights, vector, of_rows, row_bytes, size, found, stride, count, 0)
            else:
                _pair_part(weights, vector, of_rows, row_bytes, size, found, stride, count, left)
            row += count
        weights += width * vector
        output += width * LANES
