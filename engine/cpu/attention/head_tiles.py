"""Vector code for queries, keys and values of one head and token: norm, rotation, and storage as bfloat16.

Panels hold many tokens side by side instead (`engine.cpu.gemm.panels`), and float32 pools need no conversion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from engine.cpu.gemm.tiles import LANES, Tile
from engine.cpu.jit.intrinsics import half_bits, intrinsic

_UPPER_HALF = 0xFFFF0000


def _turning(*, has_norm: bool) -> Callable[..., None]:
    """Return an intrinsic that rotates a head, optionally normalized before."""

    @intrinsic
    def turning(typing_context: Any, head: Any, weights: Any, rotations: Any, size: Any, epsilon: Any) -> Any:
        """Normalize the head by head / sqrt(mean(head²) + epsilon) * weights if requested, then rotate adjacent pairs.

        All arguments are addresses, except `size`, a multiple of LANES; the head is changed in place.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _Turning(builder).build(*arguments, has_norm=has_norm)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 4, types.float32), generate

    found: Callable[..., None] = turning
    return found


class _Turning(Tile):
    """Code of a loop for the sum of squares, if needed, and a loop that writes."""

    def build(self, head: Any, weights: Any, rotations: Any, size: Any, epsilon: Any, *, has_norm: bool) -> None:
        """Emit both loops."""
        builder, integer = self._builder, size.type
        zero, step = ir.Constant(integer, 0), ir.Constant(integer, LANES)
        factor = self._factor(head, size, epsilon) if has_norm else None
        lanes = range(LANES)
        signs = ir.Constant(self._vector, [1.0 if lane % 2 else -1.0 for lane in lanes])

        def turn(place: Any, sums: list[Any]) -> list[Any]:
            at = self._bytes(place)
            target = builder.add(head, at)
            values, turns = self._load(target, self._vector), self._load(builder.add(rotations, at), self._vector)
            if factor is not None:
                scales = self._load(builder.add(weights, at), self._vector)
                values = builder.fmul(builder.fmul(values, factor), scales)
            cosines = self._picked(turns, [lane // 2 * 2 for lane in lanes])
            sines = builder.fmul(self._picked(turns, [lane // 2 * 2 + 1 for lane in lanes]), signs)
            swapped = self._picked(values, [lane ^ 1 for lane in lanes])
            self._store(self._fma(swapped, sines, builder.fmul(values, cosines, flags=("contract",))), target)
            return sums

        self._loop(zero, step, size, [], turn)

    def _factor(self, head: Any, size: Any, epsilon: Any) -> Any:
        builder, integer, number = self._builder, size.type, ir.FloatType()

        def add_squares(place: Any, sums: list[Any]) -> list[Any]:
            values = self._load(builder.add(head, self._bytes(place)), self._vector)
            return [self._fma(values, values, sums[0])]

        (squares,) = self._loop(ir.Constant(integer, 0), ir.Constant(integer, LANES), size, [self._zero()], add_squares)
        mean = builder.fdiv(self._folded(squares, builder.fadd), builder.sitofp(size, number))
        kind = ir.FunctionType(number, [number])
        root = cgutils.get_or_insert_function(builder.module, kind, "llvm.sqrt.f32")
        length = builder.call(root, [builder.fadd(mean, epsilon)])
        return self._broadcast(builder.fdiv(ir.Constant(number, 1.0), length))

    def _picked(self, vector: Any, lanes: list[int]) -> Any:
        return self._builder.shuffle_vector(vector, vector, ir.Constant(self._words, lanes))


class _Storing(Tile):
    """Code of loops over vectors of a key or a value that store them as bfloat16."""

    def build_key(self, source: Any, size: Any, target: Any, step_bytes: Any) -> None:
        """Emit the stores of pairs of features, each to its place."""
        builder, integer = self._builder, size.type
        word, double = ir.IntType(32), ir.IntType(64)
        doubles = ir.VectorType(double, LANES // 2)

        def store(place: Any, targets: list[Any]) -> list[Any]:
            (at,) = targets
            both = builder.bitcast(self._rounded(builder.add(source, self._bytes(place))), doubles)
            both = builder.or_(both, builder.lshr(both, ir.Constant(doubles, [16] * (LANES // 2))))
            pairs = builder.trunc(both, ir.VectorType(word, LANES // 2))
            for index in range(LANES // 2):
                self._store(builder.extract_element(pairs, ir.Constant(word, index)), at)
                at = builder.add(at, step_bytes)
            return [at]

        self._loop(ir.Constant(integer, 0), ir.Constant(integer, LANES), size, [target], store)

    def build_value(self, source: Any, size: Any, target: Any, is_second: Any) -> None:
        """Emit the stores of one half of each word; the other half belongs to another token and is kept."""
        builder, integer = self._builder, size.type
        word = ir.IntType(32)
        shift = builder.select(
            builder.icmp_signed("!=", is_second, ir.Constant(integer, 0)), ir.Constant(word, 16), ir.Constant(word, 0)
        )
        shifts = self._spread(shift, self._words)
        retained = builder.lshr(ir.Constant(self._words, [_UPPER_HALF] * LANES), shifts)

        def store(place: Any, sums: list[Any]) -> list[Any]:
            at = self._bytes(place)
            before = builder.and_(self._load(builder.add(target, at), self._words), retained)
            new = builder.shl(self._rounded(builder.add(source, at)), shifts)
            self._store(builder.or_(before, new), builder.add(target, at))
            return sums

        self._loop(ir.Constant(integer, 0), ir.Constant(integer, LANES), size, [], store)

    def _rounded(self, address: Any) -> Any:
        """Return the bits of the nearest bfloat16 of each lane, in words."""
        return half_bits(self._builder, self._load(address, self._vector))


@intrinsic
def store_key(typing_context: Any, source: Any, size: Any, target: Any, step_bytes: Any) -> Any:
    """Store a key's features as bfloat16 pairs that lie `step_bytes` apart.

    `source` and `target` are addresses; `size` is a multiple of LANES.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _Storing(builder).build_key(*arguments)
        return context.get_dummy_value()

    return types.void(*(types.intp,) * 4), generate


@intrinsic
def store_value(typing_context: Any, source: Any, size: Any, target: Any, is_second: Any) -> Any:
    """Store a value's features as bfloat16 in one half of each word from `target` on.

    The upper half is used if `is_second` is set. `source` and `target` are addresses; `size` is a multiple of LANES.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _Storing(builder).build_value(*arguments)
        return context.get_dummy_value()

    return types.void(*(types.intp,) * 4), generate


turn_normed, turn = _turning(has_norm=True), _turning(has_norm=False)
