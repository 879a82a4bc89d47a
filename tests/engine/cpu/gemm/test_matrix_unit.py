"""Products of rows that are cut into bfloat16 lose nothing; other processors run the unit's instructions emulated."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from llvmlite import ir
from numba import njit

from engine.cpu.gemm import matrix_unit, products
from engine.cpu.gemm.matrix_unit import CUT_BYTES, TILE_ROWS, configuration, configure, is_permitted, release
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.layout import PROJECTION
from engine.models.raw_weights import RawWeight

pytestmark = pytest.mark.skipif(LANES != TILE_ROWS, reason="a vector of this processor is no row of a tile")

Floats = npt.NDArray[np.float32]


class EmulatedTiles:
    """Eight tiles of 16 rows of 64 bytes, and what the instructions do to them."""

    def __init__(self) -> None:
        self._tiles = np.full((8, 16, 64), 255, np.uint8)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        names = ("ldtilecfg", "tilerelease", "tilezero", "tileloadd64", "tilestored64", "tdpbf16ps")
        self.functions = {name: kind(getattr(self, f"_{name}")) for name in names}

    def _ldtilecfg(self, address: int, *_: int) -> None:
        given = np.ctypeslib.as_array((ctypes.c_uint8 * 64).from_address(address))
        assert (given[0], given[16:32:2].tolist(), given[48:56].tolist()) == (1, [64] * 8, [16] * 8)

    def _tilerelease(self, *_: int) -> None:
        self._tiles[:] = 255

    def _tilezero(self, tile: int, *_: int) -> None:
        self._tiles[tile] = 0

    def _tileloadd64(self, tile: int, address: int, stride: int) -> None:
        for row in range(16):
            ctypes.memmove(self._tiles[tile, row].ctypes.data, address + row * stride, 64)

    def _tilestored64(self, tile: int, address: int, stride: int) -> None:
        for row in range(16):
            ctypes.memmove(address + row * stride, self._tiles[tile, row].ctypes.data, 64)

    def _tdpbf16ps(self, sums: int, rows: int, weights: int) -> None:
        """Add to sums [16, 16] the products of rows [16, 16 pairs] and weights [16 pairs, 16], pair by pair."""
        words = [self._tiles[tile].view(np.uint16).astype(np.uint32) << 16 for tile in (rows, weights)]
        of_rows, of_weights = (found.view(np.float32).reshape(16, 16, 2) for found in words)
        total = self._tiles[sums].view(np.float32)
        with np.errstate(invalid="ignore"):
            for pair in range(16):
                for one in range(2):
                    total += of_rows[:, pair, one, None] * of_weights[None, pair, :, one]


@pytest.fixture
def _unit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The processor's own unit, or an emulated one."""
    if is_permitted():
        yield
        return
    emulated = EmulatedTiles()

    def emit(self: Any, name: str, *arguments: Any) -> None:
        builder, number = self._builder, ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [number] * 3)
        address = ctypes.cast(emulated.functions[name], ctypes.c_void_p).value
        function = builder.inttoptr(ir.Constant(number, address), kind.as_pointer())
        given = [
            builder.ptrtoint(one, number) if isinstance(one.type, ir.PointerType) else builder.zext(one, number)
            for one in arguments
        ]
        builder.call(function, [*given, *[ir.Constant(number, 0)] * (3 - len(given))])

    monkeypatch.setattr(matrix_unit, "IS_THERE", True)
    monkeypatch.setattr(matrix_unit.MatrixUnit, "emit", emit)
    yield


def multiplied(weights: torch.Tensor, inputs: Floats, first: int = 0) -> Floats:
    """Return outputs of bfloat16 or int8 weights [outputs, size] from the first on, of inputs [rows, size]."""
    cut_row, multiply = matrix_unit.cut_row, njit(products.multiply_on_unit.py_func)  # type: ignore[attr-defined]

    @njit
    def run(unit, inputs, num_rows, size, room, records, first, num_outputs, out, stride):  # type: ignore[no-untyped-def]
        configure(unit)
        for row in range(num_rows):
            cut_row(inputs + 4 * row * size, size, room + row * CUT_BYTES * size)
        multiply(records[0], first, num_outputs, room, num_rows, out, stride)
        release()

    num_rows, size = inputs.shape
    num_outputs = weights.shape[0] - first
    memory = RecordMemory()
    records = np.array([memory.projection(RawWeight(weights.float(), None, None))], dtype=PROJECTION)
    padded = num_rows + TILE_ROWS
    room, out = np.zeros((padded, CUT_BYTES * size), np.uint8), np.full((padded, num_outputs + 3), 7.0, np.float32)
    unit, rows = configuration(), np.ascontiguousarray(inputs)
    addresses = (array.ctypes.data for array in (unit, rows, room, out))
    unit_at, rows_at, room_at, out_at = addresses
    run(unit_at, rows_at, num_rows, size, room_at, records, first, num_outputs, out_at, num_outputs + 3)
    assert (out[:, num_outputs:] == 7.0).all(), "nothing is written behind the last output"
    return out[:num_rows, :num_outputs]


@pytest.mark.usefixtures("_unit")
@pytest.mark.parametrize("num_rows", [1, 16, 17, 32, 50])
@pytest.mark.parametrize("num_outputs", [16, 32, 48])
def test_products_are_no_further_off_than_in_float32(num_rows: int, num_outputs: int) -> None:
    rng = np.random.default_rng(3)
    weights = torch.from_numpy(rng.normal(size=(num_outputs + 16, 96))).bfloat16()
    # Of many magnitudes, as what layers add up is.
    inputs = (rng.normal(size=(num_rows, 96)) * 10.0 ** rng.uniform(-3, 3, size=(1, 96))).astype(np.float32)

    found = multiplied(weights, inputs, first=16)

    exact = inputs.astype(np.float64) @ weights[16:].double().numpy().T
    assert np.abs(found - exact).max() < 1e-6 * np.abs(exact).max()


@pytest.mark.usefixtures("_unit")
@pytest.mark.parametrize("number", [1 / 3, -16777215.0, 1.9999999, 3e-30, -2.5e30])
def test_a_number_is_cut_into_parts_that_are_all_of_it(number: float) -> None:
    inputs = np.full((17, 32), number, np.float32)

    assert (multiplied(torch.eye(32).bfloat16(), inputs) == inputs).all()


@pytest.mark.usefixtures("_unit")
def test_rows_do_not_meet() -> None:
    inputs = np.ones((40, 32), np.float32)
    inputs[5], inputs[39] = np.nan, np.inf

    found = multiplied(torch.ones(32, 32).bfloat16(), inputs)

    assert np.isnan(found[5]).all()
    assert not np.isfinite(found[39]).any()
    assert (np.delete(found, [5, 39], axis=0) == 32.0).all()


def test_projections_that_the_unit_cannot_compute_have_no_record_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.cpu.gemm.records.is_permitted", lambda: True)
    memory = RecordMemory()
    for weight in (torch.ones(32, 48), torch.ones(20, 32), torch.full((32, 32), 1 / 3)):
        assert memory.linear(RawWeight(weight, None, None)).unit_record is None
    codes, scales = torch.ones(32, 32, dtype=torch.int8), torch.ones(32)
    assert memory.linear(RawWeight(codes, scales, None)).unit_record is None
    assert memory.linear(RawWeight(torch.ones(32, 32), None, None)).unit_record is not None
