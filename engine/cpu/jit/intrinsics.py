"""What the processor can do and Numba has no word for: memory by address, the bits of a number, atomics."""

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
def pointer_to_floats(typing_context: Any, address: Any) -> Any:
    """The address as a pointer to float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.intp), generate


@intrinsic
def pointer_to_integers(typing_context: Any, address: Any) -> Any:
    """The address as a pointer to int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.int64)(types.intp), generate


@intrinsic
def pointer_to_halves(typing_context: Any, address: Any) -> Any:
    """The address as a pointer to the bits of bfloat16."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.uint16)(types.intp), generate


@intrinsic
def half_of_float(typing_context: Any, number: Any) -> Any:
    """The bits of the bfloat16 that is nearest to a float32, of two the even one; of no number, those of none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.trunc(half_bits(builder, arguments[0]), ir.IntType(16))

    return types.uint16(types.float32), generate


def half_bits(builder: Any, numbers: Any) -> Any:
    """Emit what `half_of_float` says, of a float32 or of a vector of them, in as many words of 32 bits."""
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
    """The float32 that has these 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def fetch_add(typing_context: Any, address: Any, amount: Any) -> Any:
    """Add to the int64 at an address and return what it was; all threads see such additions in one order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "seq_cst")

    return types.int64(types.intp, types.int64), generate


@intrinsic
def load_acquire(typing_context: Any, address: Any) -> Any:
    """The int64 at an address, and with it everything that was written before it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(types.intp), generate


@intrinsic
def prefetch(typing_context: Any, address: Any) -> Any:
    """Have the line at an address on its way into the second level's cache."""

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
    """Make a semaphore of 32 bytes at an address, at 0, for the threads of this process; 0: it is one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call_semaphore(builder, "sem_init", arguments[0], 0, 0)

    return types.int32(types.intp), generate


@intrinsic
def sem_post(typing_context: Any, address: Any) -> Any:
    """Wake up who waits for the semaphore, or will."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call_semaphore(builder, "sem_post", arguments[0])

    return types.int32(types.intp), generate


@intrinsic
def sem_wait(typing_context: Any, address: Any) -> Any:
    """Sleep until somebody posts; 0, or else it was a signal that ended the sleep."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call_semaphore(builder, "sem_wait", arguments[0])

    return types.int32(types.intp), generate


def _call_semaphore(builder: Any, name: str, address: Any, *values: int) -> Any:
    """A function of POSIX, which the C library has."""
    number, anything = ir.IntType(32), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(number, [anything, *(number for _ in values)])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, [builder.inttoptr(address, anything), *(ir.Constant(number, one) for one in values)])


@intrinsic
def now_ns(typing_context: Any) -> Any:
    """What `time.monotonic_ns` says."""

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
def pointer_to_doubles(typing_context: Any, address: Any) -> Any:
    """The address as a pointer to float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float64)(types.intp), generate


@intrinsic
def relax(typing_context: Any) -> Any:
    """Tell the processor that this is a loop that waits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _IS_X86:
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, pause, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), generate
