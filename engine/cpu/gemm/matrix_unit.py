"""Products on the processor's matrix unit (AMX), which multiplies tiles of bfloat16 and sums in float32.

Weights in bfloat16 or int8 are exact there. A float32 is the exact sum of three bfloat16 (24 bits are three times
eight), so three products replace one in float32, in less time.
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

from engine.cpu.gemm.panel_tiles import ROW_BYTES, WIDTH
from engine.cpu.gemm.tiles import LANES, Tile
from engine.cpu.jit.intrinsics import intrinsic

_PARTS = 3
"""Number of bfloat16 that make a float32."""
_TILE_ROWS, _TILE_BYTES = 16, 1024
TILE_TOKENS = 16
TILE_OUTPUTS = 32
"""Number of a projection's outputs that are computed together."""
TILE_INPUTS = 32
PIECE_BYTES = _PARTS * _TILE_BYTES * WIDTH // TILE_TOKENS // TILE_INPUTS
"""Size of one feature of a panel cut into parts, in bytes."""
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
_HIGH_HALF = -65536


def _is_there() -> bool:
    features = llvmlite.binding.get_host_cpu_features()
    is_linux = sys.platform == "linux" and platform.machine() == "x86_64"
    return is_linux and LANES == TILE_TOKENS and all(features.get(name) for name in ("amx-tile", "amx-bf16"))


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
    found[16:32:2] = _TILE_BYTES // _TILE_ROWS
    found[48:56] = _TILE_ROWS
    return found


@intrinsic
def configure(typing_context: Any, address: Any) -> Any:
    """Configure this thread's tiles by the configuration at the address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if IS_THERE:
            _Unit(builder).configure(*arguments)
        return context.get_dummy_value()

    return types.void(types.intp), generate


@intrinsic
def release(typing_context: Any) -> Any:
    """Release this thread's tiles, so that the system need not save them at a context switch."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if IS_THERE:
            _Unit(builder).call("tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


def _product(num_columns: int) -> Callable[..., None]:
    """Return an intrinsic for `num_columns` columns of 16 tokens."""

    @intrinsic
    def product(typing_context: Any, weights: Any, row_bytes: Any, pieces: Any, num_blocks: Any, out: Any) -> Any:
        """Compute out = weights [32 outputs, 32 * num_blocks] bfloat16 times a cut panel, by addresses."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if IS_THERE:
                _Unit(builder).multiply(num_columns, *arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 5), generate

    found: Callable[..., None] = product
    return found


@intrinsic
def cut(typing_context: Any, panel: Any, pieces: Any) -> Any:
    """Cut two features of a panel into parts; `pieces` is the address of their pairs in the first column."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if IS_THERE:
            _Unit(builder).cut(*arguments)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


@intrinsic
def bytes_to_halves(typing_context: Any, weights: Any, count: Any, out: Any) -> Any:
    """Convert int8 weights to bfloat16 in `out`, by addresses; `count` is a multiple of LANES."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if IS_THERE:
            _Unit(builder).halve(*arguments)
        return context.get_dummy_value()

    return types.void(*(types.intp,) * 3), generate


class _Unit(Tile):
    """Code of the unit's instructions: sums are in its tiles 0 to 3, weights in 4 and 5, tokens in 6 and 7."""

    def __init__(self, builder: Any) -> None:
        super().__init__(builder)
        self._byte, self._integer = ir.IntType(8), ir.IntType(64)

    def configure(self, address: Any) -> None:
        """Emit the instruction that loads the configuration."""
        self.call("ldtilecfg", self._pointer(address))

    def multiply(self, num_columns: int, weights: Any, row_bytes: Any, pieces: Any, num_blocks: Any, out: Any) -> None:
        """Emit the loop over blocks of inputs."""
        builder = self._builder
        columns = range(num_columns)
        half = builder.mul(row_bytes, self._number(_TILE_ROWS))
        for index in range(2 * num_columns):
            self.call("tilezero", self._tile(index))

        def add_products(place: Any, sums: list[Any]) -> list[Any]:
            first = builder.add(weights, builder.mul(place, self._number(2 * TILE_INPUTS)))
            for index, address in enumerate((first, builder.add(first, half))):
                self._load_tile(4 + index, address, row_bytes)
            block = builder.add(pieces, builder.mul(place, self._number(TILE_INPUTS * PIECE_BYTES)))
            for part in range(_PARTS):
                for column in columns:
                    at = self._number((column * _PARTS + part) * _TILE_BYTES)
                    self._load_tile(6 + column, builder.add(block, at), self._number(_TILE_BYTES // _TILE_ROWS))
                for index in range(2):
                    for column in columns:
                        tiles = (index * num_columns + column, 4 + index, 6 + column)
                        self.call("tdpbf16ps", *(self._tile(tile) for tile in tiles))
            return sums

        self._loop(self._number(0), self._number(1), num_blocks, [], add_products)
        for index in range(2):
            for column in columns:
                at = self._number(index * _TILE_ROWS * ROW_BYTES + column * 4 * TILE_TOKENS)
                address = self._pointer(builder.add(out, at))
                self.call("tilestored64", self._tile(index * num_columns + column), address, self._number(ROW_BYTES))

    def cut(self, panel: Any, pieces: Any) -> None:
        """Emit the cut of two features of all tokens: the upper half of the remainder, three times."""
        builder = self._builder
        for column in range(WIDTH // TILE_TOKENS):
            first = builder.add(panel, self._number(4 * TILE_TOKENS * column))
            left = [self._load(builder.add(first, self._number(at)), self._vector) for at in (0, ROW_BYTES)]
            for part in range(_PARTS):
                bits = [builder.bitcast(number, self._words) for number in left]
                high = [builder.and_(word, ir.Constant(self._words, [_HIGH_HALF] * LANES)) for word in bits]
                shift = ir.Constant(self._words, [16] * LANES)
                at = self._number((column * _PARTS + part) * _TILE_BYTES)
                self._store(builder.or_(high[1], builder.lshr(bits[0], shift)), builder.add(pieces, at))
                left = [
                    builder.fsub(number, builder.bitcast(word, self._vector))
                    for number, word in zip(left, high, strict=True)
                ]

    def halve(self, weights: Any, count: Any, out: Any) -> None:
        """Emit the loop that converts int8 to bfloat16."""
        builder = self._builder
        halves = ir.VectorType(ir.IntType(16), LANES)

        def convert(place: Any, sums: list[Any]) -> list[Any]:
            bits = builder.bitcast(self._load_bytes(builder.add(weights, place)), self._words)
            found = builder.trunc(builder.lshr(bits, ir.Constant(self._words, [16] * LANES)), halves)
            address = builder.add(out, self._bytes(place, 2))
            builder.store(found, builder.inttoptr(address, halves.as_pointer()), align=2)
            return sums

        self._loop(self._number(0), self._number(LANES), count, [], convert)

    def call(self, name: str, *arguments: Any) -> None:
        """Emit one of the unit's instructions."""
        kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
        function = cgutils.get_or_insert_function(self._builder.module, kind, f"llvm.x86.{name}")
        self._builder.call(function, arguments)

    def _load_tile(self, index: int, address: Any, row_bytes: Any) -> None:
        self.call("tileloadd64", self._tile(index), self._pointer(address), row_bytes)

    def _pointer(self, address: Any) -> Any:
        return self._builder.inttoptr(address, self._byte.as_pointer())

    def _tile(self, index: int) -> Any:
        return ir.Constant(self._byte, index)

    def _number(self, value: int) -> Any:
        return ir.Constant(self._integer, value)


product_2, product_1 = _product(2), _product(1)
