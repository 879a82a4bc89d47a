"""Scores of one query made into weights, a vector of keys at a time."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types

from engine.cpu.gemm.tiles import LANES, Tile
from engine.cpu.jit import exponential
from engine.cpu.jit.intrinsics import intrinsic


@intrinsic
def weights_of(typing_context: Any, scores: Any, size: Any, start: Any, end: Any, scale: Any) -> Any:
    """Make scores [start, end) into weights beside the highest, in place; others of `size`, a multiple of LANES, become
    0. Returns 1 / their sum, by which what they weigh is to be multiplied: it is fewer numbers.

    Lanes are summed apart and then together, so that zeros before the first one seen do not change the order of sums.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _Softmax(builder).build(*arguments)

    return types.float32(*(types.intp,) * 4, types.float32), generate


class _Softmax(Tile):
    """A loop for the highest score, then one for the weights."""

    def build(self, scores: Any, size: Any, start: Any, end: Any, scale: Any) -> Any:
        """Emit both loops and what lies between them."""
        builder, integer = self._builder, size.type
        number = ir.IntType(32)
        self._places = ir.VectorType(number, LANES)
        # A place is seen if it is less than so many behind the first one that is. Places before that are negative, the
        # largest numbers without a sign, so one comparison does; processors know only those with one, hence the offset.
        lowest = ir.Constant(number, -(2**31))
        first = builder.sub(lowest, builder.trunc(start, number))
        here = builder.add(self._spread(first, self._places), ir.Constant(self._places, list(range(LANES))))
        limit = builder.add(builder.sub(builder.trunc(end, number), builder.trunc(start, number)), lowest)
        behind = self._spread(limit, self._places)
        further = ir.Constant(self._places, [LANES] * LANES)

        def is_seen(places: Any) -> Any:
            return builder.icmp_signed("<", places, behind)

        def address(place: Any) -> Any:
            return builder.add(scores, self._bytes(place))

        def raise_top(place: Any, found: list[Any]) -> list[Any]:
            places, top = found
            score = self._load(address(place), self._vector)
            seen = builder.select(is_seen(places), score, self._all(-math.inf))
            return [builder.add(places, further), self._larger(top, seen)]

        zero, step = ir.Constant(integer, 0), ir.Constant(integer, LANES)
        _, tops = self._loop(zero, step, size, [here, self._all(-math.inf)], raise_top)
        top = self._broadcast(self._folded(tops, self._larger))
        powers = self._broadcast(builder.fmul(scale, ir.Constant(ir.FloatType(), exponential.LOG2_E)))

        def weigh(place: Any, found: list[Any]) -> list[Any]:
            places, total = found
            score = self._load(address(place), self._vector)
            weight = self._power_of_two(builder.fmul(builder.fsub(score, top), powers))
            seen = builder.select(is_seen(places), weight, self._zero())
            self._store(seen, address(place))
            return [builder.add(places, further), builder.fadd(total, seen)]

        _, totals = self._loop(zero, step, size, [here, self._zero()], weigh)
        return builder.fdiv(ir.Constant(ir.FloatType(), 1.0), self._folded(totals, builder.fadd))

    def _power_of_two(self, x: Any) -> Any:
        """2 to numbers that are not above 0, right to 2e-7 of it: 2 to the nearest integer, and the rest by a
        polynomial. What is below `exponential.LEAST_POWER` counts as that."""
        builder = self._builder
        # In this order what is no number stays none.
        x = builder.select(builder.fcmp_ordered(">", self._all(exponential.LEAST_POWER), x), self._least(), x)
        power = self._of_each("rint", x)
        rest = builder.fsub(x, power)
        found = self._all(exponential.POWER_TERMS[0])
        for term in (*exponential.POWER_TERMS[1:], 1.0):
            found = self._fma(found, rest, self._all(term))
        exponent = builder.shl(builder.fptosi(power, self._places), ir.Constant(self._places, [23] * LANES))
        return builder.bitcast(builder.add(builder.bitcast(found, self._places), exponent), self._vector)

    def _least(self) -> Any:
        return self._all(exponential.LEAST_POWER)
