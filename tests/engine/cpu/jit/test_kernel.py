"""Kernels are called by their address, from compiled code and from Python."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.cpu.gemm.arithmetic import integers, view
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.kernel import address_of, call_at, kernel

INNER = np.dtype([("number", np.int64), ("function", np.int64)], align=True)
OUTER = np.dtype([("first", np.int64), ("inner", INNER)], align=True)


@kernel
def store(record: int, count: int, out: int) -> None:
    numbers = integers(out, count)
    for index in range(count):
        numbers[index] = view(record, 1, INNER)[0].number


@compiled
def call_function_of(records: NDArray[np.void], out: int) -> None:
    inner = records[0].inner
    call_at(inner.function, (address_of(inner), 2, out))


def test_compiled_code_calls_the_kernel_that_a_record_names() -> None:
    records, out = np.zeros(1, dtype=OUTER), np.zeros(3, dtype=np.int64)
    records["inner"] = (7, store.address)

    call_function_of(records, out.ctypes.data)

    assert out.tolist() == [7, 7, 0]


def test_python_calls_a_kernel_with_integers() -> None:
    record, out = np.zeros(1, dtype=INNER), np.zeros(3, dtype=np.int64)
    record["number"] = 9

    store(record.ctypes.data, 3, out.ctypes.data)

    assert out.tolist() == [9, 9, 9]
