"""Tiles over panels: numbers of up to 64 tokens side by side, so that tokens share instructions but no sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from engine.cpu.gemm.tiles import LANES, Tile
from engine.cpu.jit.intrinsics import intrinsic

WIDTH = 64
"""Number of tokens of a panel: feature f of token t is at f * WIDTH + t."""
ROW_BYTES = 4 * WIDTH
_ROWS = 4
LOWEST_SCORE = -1e30
"""Score of a key that a token does not see."""


def _outer_tile(num_vectors: int) -> Callable[..., None]:
    """Return an intrinsic for four rows of `num_vectors` vectors of tokens."""

    @intrinsic
    def tile(
        typing_context: Any, factors: Any, row_bytes: Any, step_bytes: Any, panel: Any, count: Any, out: Any
    ) -> Any:
        """Compute out[row] += Σ factors[row, i] * panel[i] for four rows, by addresses; factors are evenly spaced."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _OuterTile(builder, num_vectors).build(*arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 6), generate

    found: Callable[..., None] = tile
    return found


class _OuterTile(Tile):
    """Code of a loop over the summed index, with the sums of rows and vectors in registers."""

    def __init__(self, builder: Any, num_vectors: int) -> None:
        super().__init__(builder)
        self._num_vectors = num_vectors

    def build(self, factors: Any, row_bytes: Any, step_bytes: Any, panel: Any, count: Any, out: Any) -> None:
        """Emit the loop and the stores of its sums."""
        builder, integer = self._builder, count.type
        width, line = (ir.Constant(integer, size) for size in (LANES * 4, ROW_BYTES))
        rows = self._addresses(factors, row_bytes, _ROWS)
        targets = [
            address
            for row in self._addresses(out, line, _ROWS)
            for address in self._addresses(row, width, self._num_vectors)
        ]

        def add_products(place: Any, sums: list[Any]) -> list[Any]:
            base = builder.add(panel, builder.mul(place, line))
            vectors = [self._load(address, self._vector) for address in self._addresses(base, width, self._num_vectors)]
            at = builder.mul(place, step_bytes)
            added = []
            for row, address in enumerate(rows):
                factor = self._broadcast(self._load(builder.add(address, at), ir.FloatType()))
                for index, vector in enumerate(vectors):
                    added.append(self._fma(factor, vector, sums[row * self._num_vectors + index]))
            return added

        start = [self._load(address, self._vector) for address in targets]
        sums = self._loop(ir.Constant(integer, 0), ir.Constant(integer, 1), count, start, add_products)
        for address, found in zip(targets, sums, strict=True):
            self._store(found, address)


@intrinsic
def weigh_scores(
    typing_context: Any, scores: Any, num_keys: Any, scale: Any, highest: Any, totals: Any, factors: Any
) -> Any:
    """Replace scores [keys] of LANES tokens by softmax weights relative to the maximum so far, in place, by addresses.

    The maxima in `highest` are updated, `factors` receive the scale of earlier weights, and the new weights are added
    to `totals`. A score of LOWEST_SCORE has weight 0. `num_keys` is a multiple of 4.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _WeightedSum(builder).build(*arguments)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.float32, *(types.intp,) * 3), generate


class _WeightedSum(Tile):
    """Code of a loop for the maximum and a loop for the weights."""

    def build(self, scores: Any, num_keys: Any, scale: Any, highest: Any, totals: Any, factors: Any) -> None:
        """Emit both loops and the code between them."""
        builder, integer = self._builder, num_keys.type
        before, total = (self._load(address, self._vector) for address in (highest, totals))
        scales = self._broadcast(scale)
        start, line = ir.Constant(integer, 0), ir.Constant(integer, ROW_BYTES)

        def values(place: Any) -> list[Any]:
            return self._addresses(builder.add(scores, builder.mul(place, line)), line, _ROWS)

        def raise_tops(place: Any, tops: list[Any]) -> list[Any]:
            found = [self._load(address, self._vector) for address in values(place)]
            return [self._larger(top, value) for top, value in zip(tops, found, strict=True)]

        step = ir.Constant(integer, _ROWS)
        tops = self._loop(start, step, num_keys, [before] * _ROWS, raise_tops)
        top = self._larger(self._larger(tops[0], tops[1]), self._larger(tops[2], tops[3]))
        # For a token that sees none of these keys, the scores stay far below this bound.
        beside = self._larger(top, self._all(LOWEST_SCORE / 2))

        def weights(numbers: Any) -> Any:
            return self._exp(builder.fmul(builder.fsub(numbers, beside), scales))

        factor = weights(before)

        def weigh(place: Any, sums: list[Any]) -> list[Any]:
            added = []
            for address, so_far in zip(values(place), sums, strict=True):
                found = weights(self._load(address, self._vector))
                self._store(found, address)
                added.append(builder.fadd(so_far, found))
            return added

        sums = self._loop(start, step, num_keys, [self._zero()] * _ROWS, weigh)
        added = builder.fadd(builder.fadd(sums[0], sums[1]), builder.fadd(sums[2], sums[3]))
        for value, address in ((top, highest), (factor, factors), (self._fma(total, factor, added), totals)):
            self._store(value, address)


@intrinsic
def widen_bytes(typing_context: Any, weights: Any, count: Any, out: Any) -> Any:
    """Convert int8 weights to float32 in `out`, by addresses; `count` is a multiple of LANES."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _Widening(builder).build_bytes(*arguments)
        return context.get_dummy_value()

    return types.void(*(types.intp,) * 3), generate


@intrinsic
def widen_halves(typing_context: Any, pairs: Any, count: Any, first: Any, second: Any) -> Any:
    """Convert `count` pairs of bfloat16 to float32: the first of each to `first`, the second to `second`.

    `count` is a multiple of LANES.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _Widening(builder).build_halves(*arguments)
        return context.get_dummy_value()

    return types.void(*(types.intp,) * 4), generate


class _Widening(Tile):
    """Code of loops over vectors of weights."""

    def build_bytes(self, weights: Any, count: Any, out: Any) -> None:
        """Emit the loop over int8."""
        builder = self._builder

        def convert(place: Any, sums: list[Any]) -> list[Any]:
            self._store(self._load_bytes(builder.add(weights, place)), builder.add(out, self._bytes(place)))
            return sums

        self._loop(ir.Constant(count.type, 0), ir.Constant(count.type, LANES), count, [], convert)

    def build_halves(self, pairs: Any, count: Any, first: Any, second: Any) -> None:
        """Emit the loop over pairs of bfloat16."""
        builder = self._builder

        def convert(place: Any, sums: list[Any]) -> list[Any]:
            at = self._bytes(place)
            for found, out in zip(self._load_halves(builder.add(pairs, at)), (first, second), strict=True):
                self._store(found, builder.add(out, at))
            return sums

        self._loop(ir.Constant(count.type, 0), ir.Constant(count.type, LANES), count, [], convert)


outer_4, outer_2, outer_1 = (_outer_tile(vectors) for vectors in (4, 2, 1))
