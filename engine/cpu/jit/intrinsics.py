"""Intrinsics that Numba lacks: memory by address, bits of numbers, atomics and sleep."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _numba_intrinsic

intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = _numba_intrinsic
_MACHINE = platform.machine().lower()
_IS_X86 = _MACHINE in ("x86_64", "amd64")
_FUTEX_CALLS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
"""Numbers of Linux's system call by machine."""
HAS_FUTEX = sys.platform == "linux" and _MACHINE in _FUTEX_CALLS
"""True if threads can sleep until another one wakes them at an address."""
_SECOND_LEVEL = 2
"""LLVM's locality of prefetches into the second-level cache."""
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129
"""Operations among the threads of one process."""


@intrinsic
def pointer_to(typing_context: Any, address: Any, dtype: Any) -> Any:
    """Return the address as a pointer to numbers or records of a NumPy dtype."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(dtype.dtype)(types.intp, dtype), generate


@intrinsic
def half_of_float(typing_context: Any, number: Any) -> Any:
    """Return the bits of the bfloat16 nearest to a float32, ties to even; NaN stays NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.trunc(half_bits(builder, arguments[0]), ir.IntType(16))

    return types.uint16(types.float32), generate


def half_bits(builder: Any, numbers: Any) -> Any:
    """Emit the conversion of a float32, or a vector of them, to bfloat16 bits in 32-bit words."""
    words: Any = ir.IntType(32)
    if isinstance(numbers.type, ir.VectorType):
        words = ir.VectorType(words, numbers.type.count)

    def all_words(number: int) -> Any:
        return ir.Constant(words, [number] * words.count if isinstance(words, ir.VectorType) else number)

    bits = builder.bitcast(numbers, words)
    is_odd = builder.and_(builder.lshr(bits, all_words(16)), all_words(1))
    raised = builder.add(builder.add(bits, all_words(0x7FFF)), is_odd)
    is_none = builder.fcmp_unordered("uno", numbers, numbers)
    return builder.select(is_none, all_words(0x7FC0), builder.lshr(raised, all_words(16)))


@intrinsic
def float_of_bits(typing_context: Any, bits: Any) -> Any:
    """Return the float32 with these 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def fetch_add(typing_context: Any, address: Any, amount: Any) -> Any:
    """Add to the int64 at an address and return its old value; sequentially consistent."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "seq_cst")

    return types.int64(types.intp, types.int64), generate


@intrinsic
def load_acquire(typing_context: Any, address: Any) -> Any:
    """Load the int64 at an address with acquire ordering."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(types.intp), generate


@intrinsic
def prefetch(typing_context: Any, address: Any) -> Any:
    """Prefetch the cache line at an address into the second-level cache."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit_prefetch(builder, arguments[0], _SECOND_LEVEL)
        return context.get_dummy_value()

    return types.void(types.intp), generate


def emit_prefetch(builder: Any, address: Any, locality: int = 3) -> None:
    """Emit the prefetch of the cache line at an address, by default into the first-level cache."""
    number = ir.IntType(32)
    pointer = builder.inttoptr(address, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [pointer, *(ir.Constant(number, value) for value in (0, locality, 1))])


@intrinsic
def futex_wait(typing_context: Any, address: Any, seen: Any) -> Any:
    """Sleep until the thread is woken at this address, unless the int32 there is not the one that was seen."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call_futex(context, builder, arguments[0], _FUTEX_WAIT, arguments[1])

    return types.void(types.intp, types.int64), generate


@intrinsic
def futex_wake(typing_context: Any, address: Any, most: Any) -> Any:
    """Wake up to `most` threads that sleep at this address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call_futex(context, builder, arguments[0], _FUTEX_WAKE, arguments[1])

    return types.void(types.intp, types.int64), generate


def _call_futex(context: Any, builder: Any, address: Any, operation: int, value: Any) -> Any:
    """Call Linux's futex without a timeout, through the C library."""
    if HAS_FUTEX:
        wide = ir.IntType(64)
        kind = ir.FunctionType(wide, [wide], var_arg=True)
        function = cgutils.get_or_insert_function(builder.module, kind, "syscall")
        numbers = (ir.Constant(wide, number) for number in (_FUTEX_CALLS[_MACHINE], operation, 0))
        call, operation_number, no_timeout = numbers
        builder.call(function, [call, address, operation_number, value, no_timeout])
    return context.get_dummy_value()


@intrinsic
def now_ns(typing_context: Any) -> Any:
    """Return the time of `time.monotonic_ns`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, wide = ir.IntType(32), ir.IntType(64)
        instant = cgutils.alloca_once(builder, ir.ArrayType(wide, 2))
        kind = ir.FunctionType(number, [number, instant.type])
        function = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        builder.call(function, [ir.Constant(number, time.CLOCK_MONOTONIC), instant])
        seconds, rest = (builder.extract_value(builder.load(instant), part) for part in range(2))
        return builder.add(builder.mul(seconds, ir.Constant(wide, 10**9)), rest)

    return types.int64(), generate


@intrinsic
def relax(typing_context: Any) -> Any:
    """Emit the processor's hint for a spin-wait loop."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _IS_X86:
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, pause, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), generate
