"""Intrinsics that Numba lacks: memory by address, bits of numbers, atomics and semaphores."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _numba_intrinsic

intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = _numba_intrinsic
_IS_X86 = platform.machine().lower() in ("x86_64", "amd64")


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
        number = ir.IntType(32)
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, *(ir.Constant(number, value) for value in (0, 2, 1))])
        return context.get_dummy_value()

    return types.void(types.intp), generate


@intrinsic
def sem_init(typing_context: Any, address: Any) -> Any:
    """Initialize a semaphore of 32 bytes at an address with 0, for this process; return 0 on success."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call_semaphore(builder, "sem_init", arguments[0], 0, 0)

    return types.int32(types.intp), generate


@intrinsic
def sem_post(typing_context: Any, address: Any) -> Any:
    """Post the semaphore: wake one waiting thread, or the next to wait."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call_semaphore(builder, "sem_post", arguments[0])

    return types.int32(types.intp), generate


@intrinsic
def sem_wait(typing_context: Any, address: Any) -> Any:
    """Wait for the semaphore; return 0, or another number if a signal ended the wait."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call_semaphore(builder, "sem_wait", arguments[0])

    return types.int32(types.intp), generate


def _call_semaphore(builder: Any, name: str, address: Any, *values: int) -> Any:
    """Call a POSIX function of the C library."""
    number, anything = ir.IntType(32), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(number, [anything, *(number for _ in values)])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, [builder.inttoptr(address, anything), *(ir.Constant(number, one) for one in values)])


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
