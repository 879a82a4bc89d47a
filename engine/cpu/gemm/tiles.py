"""Base of tiles, code in LLVM instructions on registers: vectors in memory, loops and arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils

FLOAT_BYTES = 4
_UPPER_HALF = 0xFFFF0000


def _lanes() -> int:
    """Return the floats in one of the processor's widest registers; off x86, two registers count as one."""
    features = llvmlite.binding.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8


LANES = _lanes()
"""Number of lanes of a vector; sizes of inputs must be multiples of it."""
AS_WRITTEN = ("nsz",)
"""Flags of operations that Numba must not reorder, which it does without any flags."""


class Tile:
    """Emitter of instructions; it accesses numbers in memory by their address."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self._vector = ir.VectorType(ir.FloatType(), LANES)
        self._words = ir.VectorType(ir.IntType(32), LANES)

    def _zero(self) -> Any:
        return ir.Constant(self._vector, [0.0] * LANES)

    def _all_words(self, number: int) -> Any:
        return ir.Constant(self._words, [number] * LANES)

    def _addresses(self, base: Any, step: Any, count: int) -> list[Any]:
        """Return base, base + step, and so on."""
        found = [base]
        for _ in range(count - 1):
            found.append(self._builder.add(found[-1], step))
        return found

    def _bytes(self, numbers: Any, size: int = FLOAT_BYTES) -> Any:
        return self._builder.mul(numbers, ir.Constant(numbers.type, size))

    def _load(self, address: Any, what: Any) -> Any:
        return self._builder.load(self._builder.inttoptr(address, what.as_pointer()), align=FLOAT_BYTES)

    def _store(self, value: Any, address: Any) -> None:
        self._builder.store(value, self._builder.inttoptr(address, value.type.as_pointer()), align=FLOAT_BYTES)

    def _store_first(self, count: Any, value: Any, address: Any) -> None:
        """Store the first lanes of a vector."""
        builder = self._builder
        number = ir.IntType(32)
        lanes = ir.VectorType(number, LANES)
        wanted = self._spread(builder.trunc(count, number), lanes)
        mask = builder.icmp_signed("<", ir.Constant(lanes, list(range(LANES))), wanted)
        pointer = builder.inttoptr(address, value.type.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [value.type, pointer.type, number, mask.type])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
        builder.call(function, [value, pointer, ir.Constant(number, FLOAT_BYTES), mask])

    def _fma(self, one: Any, other: Any, total: Any) -> Any:
        product = self._builder.fmul(one, other, flags=("contract",))
        return self._builder.fadd(total, product, flags=("contract",))

    def _load_floats(self, address: Any) -> Any:
        return self._load(address, self._vector)

    def _load_bytes(self, address: Any) -> Any:
        builder = self._builder
        narrow, wide = (ir.VectorType(ir.IntType(bits), LANES) for bits in (8, 32))
        found = builder.load(builder.inttoptr(address, narrow.as_pointer()), align=1)
        return builder.sitofp(builder.sext(found, wide), self._vector)

    def _load_halves(self, address: Any) -> tuple[Any, Any]:
        """Load two vectors of interleaved bfloat16, each of which is the upper half of a float32's bits."""
        builder = self._builder
        both = self._load(address, self._words)
        first = builder.shl(both, self._all_words(16))
        second = builder.and_(both, self._all_words(_UPPER_HALF))
        return builder.bitcast(first, self._vector), builder.bitcast(second, self._vector)

    def _broadcast(self, number: Any) -> Any:
        return self._spread(number, self._vector)

    def _spread(self, number: Any, kind: Any) -> Any:
        """Return a vector with the same number in every lane."""
        builder = self._builder
        first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first, first, ir.Constant(self._words, [0] * LANES))

    def _all(self, number: float) -> Any:
        return ir.Constant(self._vector, [number] * LANES)

    def _larger(self, one: Any, other: Any) -> Any:
        """Return the larger number of each pair; the second where one is NaN."""
        return self._builder.select(self._builder.fcmp_ordered(">", one, other), one, other)

    def _of_each(self, name: str, vector: Any) -> Any:
        """Apply LLVM's function of this name to each lane."""
        kind = ir.FunctionType(self._vector, [self._vector])
        function = cgutils.get_or_insert_function(self._builder.module, kind, f"llvm.{name}.v{LANES}f32")
        return self._builder.call(function, [vector])

    def _folded(self, vector: Any, together: Callable[[Any, Any], Any]) -> Any:
        """Reduce a vector's lanes to one number by combining halves."""
        builder, width = self._builder, LANES
        while width > 1:
            width //= 2
            kind = ir.VectorType(ir.IntType(32), width)
            low, high = (ir.Constant(kind, list(range(first, first + width))) for first in (0, width))
            vector = together(*(builder.shuffle_vector(vector, vector, lanes) for lanes in (low, high)))
        return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))

    def _loop(
        self, first: Any, step: Any, end: Any, sums: list[Any], body: Callable[[Any, list[Any]], list[Any]]
    ) -> list[Any]:
        """Emit a loop from `first` in steps below `end`, which runs at least once; return its sums."""
        builder = self._builder
        before, loop, behind = builder.block, builder.append_basic_block("tile"), builder.append_basic_block("tiled")
        builder.branch(loop)
        builder.position_at_end(loop)
        place = builder.phi(first.type)
        place.add_incoming(first, before)
        running = []
        for value in sums:
            running.append(builder.phi(value.type))
            running[-1].add_incoming(value, before)
        found = body(place, running)
        following = builder.add(place, step)
        place.add_incoming(following, builder.block)
        for phi, value in zip(running, found, strict=True):
            phi.add_incoming(value, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, end), loop, behind)
        builder.position_at_end(behind)
        return found
