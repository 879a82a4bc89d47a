"""Scores of one query made into weights, a vector of keys at a time."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types

from engine.compiled.intrinsics import intrinsic
from engine.compiled.tiles import LANES, Tile


@intrinsic
def softmax(typing_context: Any, scores: Any, size: Any, start: Any, end: Any, scale: Any) -> Any:
    """Make scores [start, end) into weights that sum to 1, in place; others of `size`, a multiple of LANES, become 0.

    Lanes are summed apart and then together, so that zeros before the first one seen do not change the order of sums.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _Softmax(builder).build(*arguments)
        return context.get_dummy_value()

    return types.void(*(types.intp,) * 4, types.float32), generate


class _Softmax(Tile):
    """Loops for the highest score, for the weights and for their shares."""

    def build(self, scores: Any, size: Any, start: Any, end: Any, scale: Any) -> None:
        """Emit the loops and what lies between them."""
        builder, integer = self._builder, size.type
        number = ir.IntType(32)
        places = ir.VectorType(number, LANES)
        first, behind = (self._spread(builder.trunc(limit, number), places) for limit in (start, end))
        scales = self._broadcast(scale)

        def is_seen(place: Any) -> Any:
            found = builder.add(
                self._spread(builder.trunc(place, number), places), ir.Constant(places, list(range(LANES)))
            )
            return builder.and_(builder.icmp_signed(">=", found, first), builder.icmp_signed("<", found, behind))

        def address(place: Any) -> Any:
            return builder.add(scores, self._bytes(place))

        def raise_top(place: Any, tops: list[Any]) -> list[Any]:
            found = self._load(address(place), self._vector)
            seen = builder.select(is_seen(place), found, self._all(-math.inf))
            return [self._larger(tops[0], seen)]

        def weigh(place: Any, sums: list[Any]) -> list[Any]:
            found = self._load(address(place), self._vector)
            weights = self._exp(builder.fmul(builder.fsub(found, top), scales))
            seen = builder.select(is_seen(place), weights, self._zero())
            self._store(seen, address(place))
            return [builder.fadd(sums[0], seen)]

        def share(place: Any, sums: list[Any]) -> list[Any]:
            self._store(builder.fmul(self._load(address(place), self._vector), factor), address(place))
            return sums

        zero, step = ir.Constant(integer, 0), ir.Constant(integer, LANES)
        tops = self._loop(zero, step, size, [self._all(-math.inf)], raise_top)
        top = self._broadcast(self._folded(tops[0], self._larger))
        sums = self._loop(zero, step, size, [self._zero()], weigh)
        factor = builder.fdiv(self._all(1.0), self._broadcast(self._folded(sums[0], builder.fadd)))
        self._loop(zero, step, size, [], share)
