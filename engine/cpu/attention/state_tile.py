"""Gated delta rule of one head and token, on columns of its state that are held in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from engine.cpu.gemm.tiles import FLOAT_BYTES, LANES, Tile
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.intrinsics import intrinsic

_MANY = 4
"""Vectors of columns that are computed together; their sums do not wait for one another."""


def _advancing(count: int) -> Callable[..., None]:
    """Return an intrinsic that advances `count` vectors of adjacent columns."""

    @intrinsic
    def advancing(
        typing_context: Any,
        before: Any,
        after: Any,
        row_bytes: Any,
        keys: Any,
        queries: Any,
        key_dim: Any,
        values: Any,
        out: Any,
        decay: Any,
        rate: Any,
    ) -> Any:
        """Compute the columns of S and of S' q, where S' = decay S + k ⊗ rate (v - decay Sᵀ k).

        Arguments are addresses, except sizes and the two factors. Rows of S, at `before`, and of S', at `after`, lie
        `row_bytes` apart; both may be the same memory.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _Advancing(builder, count).build(*arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 8, types.float32, types.float32), generate

    found: Callable[..., None] = advancing
    return found


class _Advancing(Tile):
    """Code of a loop that reads the state under the key, and a loop that changes it and reads it under the query."""

    def __init__(self, builder: Any, count: int) -> None:
        super().__init__(builder)
        self._count = count

    def build(
        self,
        before: Any,
        after: Any,
        row_bytes: Any,
        keys: Any,
        queries: Any,
        key_dim: Any,
        values: Any,
        out: Any,
        decay: Any,
        rate: Any,
    ) -> None:
        """Emit both loops."""
        builder, integer = self._builder, key_dim.type
        zero, one = ir.Constant(integer, 0), ir.Constant(integer, 1)
        decays, rates = self._broadcast(decay), self._broadcast(rate)

        def factor(numbers: Any, place: Any) -> Any:
            return self._broadcast(self._load(builder.add(numbers, self._bytes(place)), ir.FloatType()))

        def read(place: Any, sums: list[Any]) -> list[Any]:
            key = factor(keys, place)
            row = self._loaded(builder.add(before, builder.mul(place, row_bytes)))
            return [self._fma(numbers, key, total) for numbers, total in zip(row, sums, strict=True)]

        known = self._loop(zero, one, key_dim, self._zeros(), read)
        changes = []
        for value, found in zip(self._loaded(values), known, strict=True):
            missing = builder.fsub(value, builder.fmul(found, decays))
            changes.append(builder.fmul(missing, rates))

        def change(place: Any, sums: list[Any]) -> list[Any]:
            key, query = factor(keys, place), factor(queries, place)
            offset = builder.mul(place, row_bytes)
            row, targets = self._loaded(builder.add(before, offset)), self._columns(builder.add(after, offset))
            totals = []
            for numbers, added, target, total in zip(row, changes, targets, sums, strict=True):
                changed = self._fma(added, key, builder.fmul(numbers, decays))
                self._store(changed, target)
                totals.append(self._fma(changed, query, total))
            return totals

        for total, target in zip(
            self._loop(zero, one, key_dim, self._zeros(), change), self._columns(out), strict=True
        ):
            self._store(total, target)

    def _zeros(self) -> list[Any]:
        return [self._zero()] * self._count

    def _columns(self, address: Any) -> list[Any]:
        """Return the addresses of the vectors from an address on."""
        return self._addresses(address, ir.Constant(address.type, LANES * FLOAT_BYTES), self._count)

    def _loaded(self, address: Any) -> list[Any]:
        return [self._load(column, self._vector) for column in self._columns(address)]


_advance_many, _advance_one = _advancing(_MANY), _advancing(1)


@compiled
def advance_state(before, after, key_dim, value_dim, keys, queries, values, out, decay, rate):
    """Advance the state [key_dim, value_dim] of one head by one token, and write what its query reads.

    Arguments are addresses, except sizes and the two float32 factors; `value_dim` is a multiple of LANES. The new state
    is written to `after`, which may be `before` itself.
    """
    row_bytes = FLOAT_BYTES * value_dim
    column = 0
    while column < value_dim:
        at = FLOAT_BYTES * column
        columns = before + at, after + at, row_bytes
        ends = values + at, out + at
        if value_dim - column >= _MANY * LANES:
            _advance_many(*columns, keys, queries, key_dim, *ends, decay, rate)
            column += _MANY * LANES
        else:
            _advance_one(*columns, keys, queries, key_dim, *ends, decay, rate)
            column += LANES
