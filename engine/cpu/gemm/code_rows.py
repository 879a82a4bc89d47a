"""Rows of activations as int8 codes, in groups of inputs with a scale each.

A group's few large numbers thus cost precision in their own group alone. A row's codes depend on no other row.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from engine.cpu.gemm.tiles import AS_WRITTEN, LANES, Tile
from engine.cpu.jit.intrinsics import intrinsic

CODE_GROUP = 32
"""Number of inputs that share a scale."""
GROUP_BYTES = 16 + CODE_GROUP
"""Size of a group of a row: scale (float32), start (int32), sum (float32), four unused bytes, and the codes."""
START_AT, SUM_AT, CODES_AT = 4, 8, 16
_INT8_MAX = 127
_LEAST_LENGTH = 1e-30
_INFINITY_BITS = 0x7F800000
_ROUNDER = 1.5 * 2**23
"""Number whose sum with a small one has the nearest integer in its lowest bits, ties to even."""
_ROUNDER_BITS = 0x4B400000


@intrinsic
def round_to_codes(typing_context: Any, row: Any, num_groups: Any, zero: Any, out: Any) -> Any:
    """Round a row of float32 in groups of CODE_GROUP to 255 even steps up to their largest magnitude, by addresses.

    `out` receives GROUP_BYTES for each group. A start is -zero * Σ codes, and a sum is scale * Σ codes. A group with
    NaN or infinity gets the scale NaN.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _Rounding(builder).build(*arguments)
        return context.get_dummy_value()

    return types.void(*(types.intp,) * 4), generate


class _Rounding(Tile):
    """Generator of the loop over groups."""

    def build(self, row: Any, num_groups: Any, zero: Any, out: Any) -> None:
        """Emit the loop."""
        builder, integer = self._builder, num_groups.type
        minus_zero = builder.neg(builder.trunc(zero, ir.IntType(32)))

        def round_group(index: Any, nothing: list[Any]) -> list[Any]:
            source = builder.add(row, builder.mul(index, ir.Constant(integer, 4 * CODE_GROUP)))
            target = builder.add(out, builder.mul(index, ir.Constant(integer, GROUP_BYTES)))
            places = self._addresses(source, ir.Constant(integer, 4 * LANES), CODE_GROUP // LANES)
            values = [self._load_floats(place) for place in places]
            scale, inverse = self._scale(values)
            codes = [self._codes(value, self._broadcast(inverse)) for value in values]
            total = self._sum_of(codes)
            self._store(scale, target)
            self._store(builder.mul(total, minus_zero), builder.add(target, ir.Constant(integer, START_AT)))
            of_sum = builder.fmul(builder.sitofp(total, ir.FloatType()), scale, flags=AS_WRITTEN)
            self._store(of_sum, builder.add(target, ir.Constant(integer, SUM_AT)))
            first = builder.add(target, ir.Constant(integer, CODES_AT))
            for bits, place in zip(codes, self._addresses(first, ir.Constant(integer, LANES), len(codes)), strict=True):
                narrow = builder.trunc(bits, ir.VectorType(ir.IntType(8), LANES))
                builder.store(narrow, builder.inttoptr(place, narrow.type.as_pointer()), align=1)
            return nothing

        self._loop(ir.Constant(integer, 0), ir.Constant(integer, 1), num_groups, [], round_group)

    def _scale(self, values: list[Any]) -> tuple[Any, Any]:
        """Return a group's scale, NaN if it has a number that is not finite, and the scale's inverse."""
        builder, number, word = self._builder, ir.FloatType(), ir.IntType(32)
        top = self._magnitudes(values[0])
        for value in values[1:]:
            other = self._magnitudes(value)
            # The bits of magnitudes have the order of the numbers, with NaN last.
            top = builder.select(builder.icmp_signed(">", other, top), other, top)
        bits = self._reduced("smax", top)
        largest, least = builder.bitcast(bits, number), ir.Constant(number, _LEAST_LENGTH)
        largest = builder.select(builder.fcmp_ordered(">", largest, least), largest, least)
        scale = builder.fmul(largest, ir.Constant(number, 1.0 / _INT8_MAX), flags=AS_WRITTEN)
        inverse = builder.fdiv(ir.Constant(number, float(_INT8_MAX)), largest, flags=AS_WRITTEN)
        is_finite = builder.icmp_signed("<", bits, ir.Constant(word, _INFINITY_BITS))
        return builder.select(is_finite, scale, ir.Constant(number, float("nan"))), inverse

    def _magnitudes(self, value: Any) -> Any:
        """Return the bits of each lane's magnitude."""
        return self._builder.and_(self._builder.bitcast(value, self._words), self._all_words(0x7FFFFFFF))

    def _codes(self, value: Any, inverses: Any) -> Any:
        """Return words with a code in the lowest byte."""
        rounder = ir.Constant(self._vector, [_ROUNDER] * LANES)
        steps = self._builder.fmul(value, inverses, flags=AS_WRITTEN)
        return self._builder.bitcast(self._builder.fadd(steps, rounder, flags=AS_WRITTEN), self._words)

    def _sum_of(self, codes: list[Any]) -> Any:
        """Return the sum of all codes, int32."""
        total = codes[0]
        for others in codes[1:]:
            total = self._builder.add(total, others)
        extra = _ROUNDER_BITS * CODE_GROUP % 2**32
        return self._builder.sub(self._reduced("add", total), ir.Constant(ir.IntType(32), extra))

    def _reduced(self, operation: str, words: Any) -> Any:
        """Return one word of all lanes."""
        kind = ir.FunctionType(ir.IntType(32), [self._words])
        name = f"llvm.vector.reduce.{operation}.v{LANES}i32"
        return self._builder.call(cgutils.get_or_insert_function(self._builder.module, kind, name), [words])
