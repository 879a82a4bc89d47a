"""Products on the processor's matrix unit (AMX), which multiplies tiles of bfloat16 and sums in float32.

Weights in bfloat16 or int8 are exact there. A float32 is the exact sum of three bfloat16 (24 bits are three times
eight), so three products replace one in float32.

The unit earns its place by arithmetic. A block of 32 tokens, 32 outputs and 32 inputs takes 12 products of 16 cycles:
170 multiplications a cycle, where two AVX-512 units reach 32 in float32. Prompts are bound by multiplications: 128
tokens share each weight that is read. Rows of few tokens are bound by reading weights, and stay on vector units.
Layers are computed by the code of all other steps; only products differ.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils

from engine.cpu.gemm.tiles import LANES, Tile
from engine.cpu.jit.intrinsics import intrinsic

_PARTS = 3
"""Number of bfloat16 that make a float32."""
TILE_ROWS = 16
"""Number of tokens of a tile, and of outputs."""
TILE_INPUTS = 32
_LINE, _TILE_BYTES = 2 * TILE_INPUTS, 2 * TILE_INPUTS * TILE_ROWS
CUT_BYTES = 2 * _PARTS
"""Size of one number that is cut into parts, in bytes."""
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
_HIGH_HALF = -65536


def _is_there() -> bool:
    features = llvmlite.binding.get_host_cpu_features()
    is_linux = sys.platform == "linux" and platform.machine() == "x86_64"
    return is_linux and LANES == TILE_ROWS and all(features.get(name) for name in ("amx-tile", "amx-bf16"))


IS_THERE = _is_there()
"""True if this processor has the unit."""


@cache
def is_permitted() -> bool:
    """Return whether the unit exists and this process may use it; Linux requires a request."""
    return IS_THERE and ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0


def configuration() -> npt.NDArray[np.uint8]:
    """Return the unit's configuration: eight tiles of 16 rows of 64 bytes."""
    found = np.zeros(64, dtype=np.uint8)
    found[0] = 1
    found[16:32:2] = _LINE
    found[48:56] = TILE_ROWS
    return found


@intrinsic
def configure(typing_context: Any, address: Any) -> Any:
    """Configure this thread's tiles by the configuration at the address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if IS_THERE:
            MatrixUnit(builder).configure(*arguments)
        return context.get_dummy_value()

    return types.void(types.intp), generate


@intrinsic
def release(typing_context: Any) -> Any:
    """Release this thread's tiles, so that the system need not save them at a context switch."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if IS_THERE:
            MatrixUnit(builder).emit("tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def cut_row(typing_context: Any, row: Any, size: Any, out: Any) -> Any:
    """Cut a row of float32 into parts, by addresses; `size` is a multiple of TILE_INPUTS.

    Each TILE_INPUTS numbers become one line of 64 bytes of bfloat16 for each part.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if IS_THERE:
            MatrixUnit(builder).cut(*arguments)
        return context.get_dummy_value()

    return types.void(*(types.intp,) * 3), generate


def _product(num_tiles: int, num_vectors: int) -> Callable[..., None]:
    """Return an intrinsic for `num_tiles` tiles of rows and `num_vectors` vectors of outputs, at most two of either."""

    @intrinsic
    def product(
        typing_context: Any,
        rows: Any,
        row_bytes: Any,
        weights: Any,
        vector_bytes: Any,
        num_blocks: Any,
        out: Any,
        out_bytes: Any,
    ) -> Any:
        """Compute outputs of rows that `cut_row` cut, by addresses; all rows of the tiles are read and written.

        Weights are bfloat16 in pairs of inputs, as `records.packed` lays them out, `vector_bytes` to the next vector.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if IS_THERE:
                MatrixUnit(builder).multiply(num_tiles, num_vectors, *arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 7), generate

    found: Callable[..., None] = product
    return found


class MatrixUnit(Tile):
    """Emitter of the unit's instructions: sums are in its tiles 0 to 3, rows in 4 and 5, weights in 6 and 7."""

    def configure(self, address: Any) -> None:
        """Emit the instruction that loads the configuration."""
        self.emit("ldtilecfg", self._pointer(address))

    def multiply(
        self,
        num_tiles: int,
        num_vectors: int,
        rows: Any,
        row_bytes: Any,
        weights: Any,
        vector_bytes: Any,
        num_blocks: Any,
        out: Any,
        out_bytes: Any,
    ) -> None:
        """Emit the loop over blocks of inputs, and the stores of the sums."""
        builder, integer = self._builder, num_blocks.type
        of_tiles = self._addresses(rows, builder.mul(row_bytes, self._number(TILE_ROWS)), num_tiles)
        of_vectors = self._addresses(weights, vector_bytes, num_vectors)
        for index in range(num_tiles * num_vectors):
            self.emit("tilezero", self._tile(index))

        def add_products(place: Any, sums: list[Any]) -> list[Any]:
            at = builder.mul(place, self._number(_TILE_BYTES))
            for vector, address in enumerate(of_vectors):
                self._load_tile(6 + vector, builder.add(address, at), self._number(_LINE))
            for part in range(_PARTS):
                line = builder.add(builder.mul(place, self._number(_PARTS * _LINE)), self._number(part * _LINE))
                for tile, address in enumerate(of_tiles):
                    self._load_tile(4 + tile, builder.add(address, line), row_bytes)
                for tile in range(num_tiles):
                    for vector in range(num_vectors):
                        operands = (tile * num_vectors + vector, 4 + tile, 6 + vector)
                        self.emit("tdpbf16ps", *(self._tile(operand) for operand in operands))
            return sums

        self._loop(ir.Constant(integer, 0), ir.Constant(integer, 1), num_blocks, [], add_products)
        for tile, target in enumerate(self._addresses(out, builder.mul(out_bytes, self._number(TILE_ROWS)), num_tiles)):
            for vector, address in enumerate(self._addresses(target, self._number(4 * LANES), num_vectors)):
                self.emit("tilestored64", self._tile(tile * num_vectors + vector), self._pointer(address), out_bytes)

    def cut(self, row: Any, size: Any, out: Any) -> None:
        """Emit the loop that cuts numbers: the upper half of the remainder, three times."""
        builder, integer = self._builder, size.type
        halves, shift = ir.VectorType(ir.IntType(16), LANES), ir.Constant(self._words, [16] * LANES)
        high_half = ir.Constant(self._words, [_HIGH_HALF] * LANES)

        def cut_line(place: Any, sums: list[Any]) -> list[Any]:
            source = builder.add(row, self._bytes(place))
            target = builder.add(out, self._bytes(place, CUT_BYTES))
            for index in range(TILE_INPUTS // LANES):
                left = self._load_floats(builder.add(source, self._number(4 * LANES * index)))
                for part in range(_PARTS):
                    bits = builder.bitcast(left, self._words)
                    address = builder.add(target, self._number(part * _LINE + 2 * LANES * index))
                    self._store(builder.trunc(builder.lshr(bits, shift), halves), address)
                    left = builder.fsub(left, builder.bitcast(builder.and_(bits, high_half), self._vector))
            return sums

        self._loop(ir.Constant(integer, 0), ir.Constant(integer, TILE_INPUTS), size, [], cut_line)

    def emit(self, name: str, *arguments: Any) -> None:
        """Emit one of the unit's instructions."""
        kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
        function = cgutils.get_or_insert_function(self._builder.module, kind, f"llvm.x86.{name}")
        self._builder.call(function, arguments)

    def _load_tile(self, index: int, address: Any, row_bytes: Any) -> None:
        self.emit("tileloadd64", self._tile(index), self._pointer(address), row_bytes)

    def _pointer(self, address: Any) -> Any:
        return self._builder.inttoptr(address, ir.IntType(8).as_pointer())

    def _tile(self, index: int) -> Any:
        return ir.Constant(ir.IntType(8), index)

    def _number(self, value: int) -> Any:
        return ir.Constant(ir.IntType(64), value)


unit_product_1_1, unit_product_1_2, unit_product_2_1, unit_product_2_2 = (
    _product(tiles, vectors) for tiles in (1, 2) for vectors in (1, 2)
)
