"""Softmax weights of one query's scores, one vector of keys at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from engine.cpu.gemm.tiles import LANES, Tile
from engine.cpu.jit import exponential
from engine.cpu.jit.intrinsics import intrinsic

NO_SINK = np.float32(-math.inf)
"""Score that weighs nothing."""


@intrinsic
def weights_of(typing_context: Any, scores: Any, size: Any, start: Any, end: Any, scale: Any, sink: Any) -> Any:
    """Replace scores [start, end) by unnormalized softmax weights in place, and the others of `size` by 0.

    Returns 1 / their sum, to scale the weighted sum by, which has fewer numbers. `size` is a multiple of LANES.
    The sum includes the weight of `sink`, a score without a place, as large as scores are before they are scaled;
    NO_SINK weighs nothing.
    Each lane is summed separately before lanes are added, so that leading zeros do not change the order of sums.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _Softmax(builder).build(*arguments)

    return types.float32(*(types.intp,) * 4, types.float32, types.float32), generate


class _Softmax(Tile):
    """Code of a loop for the maximum and a loop for the weights."""

    def build(self, scores: Any, size: Any, start: Any, end: Any, scale: Any, sink: Any) -> Any:
        """Emit both loops and the code between them."""
        builder, integer = self._builder, size.type
        number = ir.IntType(32)
        self._places = ir.VectorType(number, LANES)
        # A place is seen if its distance to the first one is below a limit. Earlier places are negative, the largest
        # unsigned numbers, so one comparison is enough. Processors compare signed numbers only, hence the offset.
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
        _, tops = self._loop(zero, step, size, [here, self._broadcast(sink)], raise_top)
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
        of_sink = self._power_of_two(builder.fmul(builder.fsub(self._broadcast(sink), top), powers))
        total = builder.fadd(
            self._folded(totals, builder.fadd), builder.extract_element(of_sink, ir.Constant(number, 0))
        )
        return builder.fdiv(ir.Constant(ir.FloatType(), 1.0), total)

    def _power_of_two(self, x: Any) -> Any:
        """Return 2 to the power of numbers ≤ 0, with a relative error of 2e-7.

        The result is 2 to the nearest integer times a polynomial of the rest. Smaller numbers than
        `exponential.LEAST_POWER` count as that.
        """
        builder = self._builder
        # In this order NaN stays NaN.
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
