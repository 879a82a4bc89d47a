"""Integer tiles: rows rounded to int8 times int8 weights, four products per instruction (VNNI).

Integer sums are exact, so results do not depend on their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types

from engine.cpu.gemm.micro_kernel import TOGETHER, CodeOperands, MicroKernel, Registers
from engine.cpu.gemm.tiles import LANES, Tile
from engine.cpu.jit.intrinsics import intrinsic
from engine.quantization.weights import INT8_MAX

HEADER_BYTES = 64
"""Size of the header before a row's codes, which holds its scale, a float32."""
OFFSET = INT8_MAX + 1
"""Offset added to a row's codes, because the instruction takes them unsigned; the sums are corrected for it."""
_LEAST_LENGTH = 1e-30
ROUNDED = Registers(num_sums=LANES // TOGETHER, most_rows=12 if LANES > 8 else 6)
"""Registers of tiles of two vectors of outputs; `num_sums` is the maximum, used with few rows."""
_IN_FLIGHT = 8
"""Number of concurrent sums that hides the latency of a product."""

_AS_WRITTEN = ("nsz",)
"""Flags of operations that Numba must not reorder, which it does without any flags."""


def _is_there() -> bool:
    name = {16: "avx512vnni", 8: "avxvnni"}[LANES]
    return bool(llvmlite.binding.get_host_cpu_features().get(name))


IS_THERE = _is_there()
"""True if this processor has the instruction."""


def _rounded_tile(num_vectors: int, *, is_cut: bool = False) -> Callable[..., None]:
    """Return an intrinsic for tiles of `num_vectors` vectors of outputs; `is_cut` allows a partial last vector."""

    @intrinsic
    def tile(
        typing_context: Any,
        weights: Any,
        vector_bytes: Any,
        offsets: Any,
        scales: Any,
        rows: Any,
        row_bytes: Any,
        count: Any,
        out: Any,
        out_bytes: Any,
        num_rows: Any,
        num_outputs: Any,
    ) -> Any:
        """Compute rounded products by addresses.

        out[row, output] = (Σ codes[row, i] * weights[i, output] + offsets[output]) * scale[row] * scales[output].
        Weights are int8 [count / 4, LANES, 4] of each vector, `vector_bytes` apart. Offsets int32 and scales float32
        cover whole vectors. Rows come from `round_to_codes`, at most `ROUNDED.most_rows`. All outputs of the vectors
        are written, or of a cut tile the first `num_outputs`.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if IS_THERE:
                _RoundedTile(builder, num_vectors, ROUNDED, is_cut=is_cut).build_scaled(*arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 11), generate

    found: Callable[..., None] = tile
    return found


class _RoundedTile(MicroKernel):
    """Generator of products of codes, scaled before they are stored."""

    def build_scaled(
        self,
        weights: Any,
        vector_bytes: Any,
        offsets: Any,
        scales: Any,
        rows: Any,
        row_bytes: Any,
        count: Any,
        out: Any,
        out_bytes: Any,
        num_rows: Any,
        num_outputs: Any,
    ) -> None:
        """Emit the loop over the inputs, four at a time, for each number of rows."""
        builder, integer = self._builder, count.type
        width, header = (ir.Constant(integer, size) for size in (LANES * 4, HEADER_BYTES))

        def totals_of(of_rows: list[Any], targets: list[Any]) -> list[Any]:
            codes = [builder.add(row, header) for row in of_rows]
            each = self._addresses(offsets, width, self._num_vectors)
            start = [self._load(address, self._words) for address in each] * len(of_rows)
            num_sums = max(1, min(ROUNDED.num_sums, _IN_FLIGHT // len(start)))
            totals = self.summed(CodeOperands(builder, num_sums, weights, vector_bytes), codes, count, start, num_sums)
            factors = [self._load(address, self._vector) for address in self._addresses(scales, width, len(each))]
            lengths = [self._broadcast(self._load(row, ir.FloatType())) for row in of_rows]
            found = []
            for index, total in enumerate(totals):
                row, vector = divmod(index, self._num_vectors)
                scaled = builder.fmul(builder.sitofp(total, self._vector), lengths[row], flags=_AS_WRITTEN)
                found.append(builder.fmul(scaled, factors[vector], flags=_AS_WRITTEN))
            return found

        self.build(num_rows, (rows, row_bytes), (out, out_bytes), totals_of, num_outputs)


def _rounding(*, as_codes: bool) -> Callable[..., None]:
    """Return an intrinsic that rounds a row to codes, or to the float32 values of the codes."""

    @intrinsic
    def rounding(typing_context: Any, row: Any, size: Any, out: Any) -> Any:
        """Round a row of float32 to 255 even steps up to its largest magnitude, by addresses.

        `size` is a multiple of LANES. A row with NaN or infinity becomes NaN.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _Rounding(builder, as_codes=as_codes).build(*arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 3), generate

    found: Callable[..., None] = rounding
    return found


class _Rounding(Tile):
    """Code of a loop for the largest magnitude and a loop that rounds."""

    def __init__(self, builder: Any, *, as_codes: bool) -> None:
        super().__init__(builder)
        self._as_codes = as_codes

    def build(self, row: Any, size: Any, out: Any) -> None:
        """Emit both loops and the code between them."""
        builder, integer, number = self._builder, size.type, ir.FloatType()

        def measure(place: Any, found: list[Any]) -> list[Any]:
            values = self._load(builder.add(row, self._bytes(place)), self._vector)
            # This is NaN for NaN and infinity, otherwise 0.
            nothing = builder.fadd(found[1], builder.fsub(values, values))
            return [self._larger(self._of_each("fabs", values), found[0]), nothing]

        zero, step = ir.Constant(integer, 0), ir.Constant(integer, LANES)
        tops, nothings = self._loop(zero, step, size, [self._zero(), self._zero()], measure)
        top = self._folded(tops, self._larger)
        least = ir.Constant(number, _LEAST_LENGTH)
        top = builder.select(builder.fcmp_ordered(">", top, least), top, least)
        largest = ir.Constant(number, float(INT8_MAX))
        scale = builder.fadd(builder.fdiv(top, largest), self._folded(nothings, builder.fadd))
        if self._as_codes:
            self._store(scale, out)
        scales, inverses = self._broadcast(scale), self._broadcast(builder.fdiv(largest, top))

        def round_values(place: Any, found: list[Any]) -> list[Any]:
            values = self._load(builder.add(row, self._bytes(place)), self._vector)
            steps = self._of_each("rint", builder.fmul(values, inverses))
            if self._as_codes:
                self._store_codes(steps, builder.add(out, builder.add(place, ir.Constant(integer, HEADER_BYTES))))
            else:
                self._store(builder.fmul(steps, scales), builder.add(out, self._bytes(place)))
            return found

        self._loop(zero, step, size, [], round_values)

    def _store_codes(self, steps: Any, address: Any) -> None:
        builder = self._builder
        codes = builder.add(builder.fptosi(steps, self._words), ir.Constant(self._words, [OFFSET] * LANES))
        narrow = builder.trunc(codes, ir.VectorType(ir.IntType(8), LANES))
        builder.store(narrow, builder.inttoptr(address, narrow.type.as_pointer()), align=1)


rounded_2, rounded_1, rounded_part = _rounded_tile(2), _rounded_tile(1), _rounded_tile(1, is_cut=True)
round_to_codes, round_to_floats = _rounding(as_codes=True), _rounding(as_codes=False)
