"""Kernels: compiled functions that other compiled code calls by their address.

Numba compiles a function that is called by its name again within each of its callers, and theirs. A kernel is compiled
once, when its address is first read.
"""

from __future__ import annotations

import ctypes
import inspect
from functools import cached_property
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.ccallback import CFunc

from engine.cpu.jit.compiler import CODE_CACHE, FAST, Compiled, options
from engine.cpu.jit.failure import reported_as_compile_error
from engine.cpu.jit.intrinsics import intrinsic


class CompiledKernel:
    """Function of integers without a result, such as addresses and sizes."""

    def __init__(self, function: Compiled) -> None:
        self.name = function.__name__
        num_arguments = len(inspect.signature(function).parameters)
        signature = types.void(*(types.intp,) * num_arguments)
        self._code = CFunc(function, (signature.args, signature.return_type), {}, options(FAST))
        self._prototype = ctypes.CFUNCTYPE(None, *(ctypes.c_ssize_t,) * num_arguments)
        CODE_CACHE.add(self._code, function)

    @cached_property
    def address(self) -> int:
        """Address of the code, which is compiled or read from the cache now. Raises CompileError."""
        with reported_as_compile_error(self.name):
            self._code.compile()
        address: Any = self._code.address
        return int(address)

    def __call__(self, *arguments: int) -> None:
        """Call the kernel from Python."""
        self._prototype(self.address)(*arguments)


def kernel(function: Compiled) -> CompiledKernel:
    """Make a kernel of a function that the interpreter's lock does not hold up."""
    return CompiledKernel(function)


@intrinsic
def call_at(typing_context: Any, address: Any, arguments: Any) -> Any:
    """Call the kernel at an address with a tuple of integers."""
    count = len(arguments)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        numbers = cgutils.unpack_tuple(builder, values[1], count)
        kind = ir.FunctionType(ir.VoidType(), [number.type for number in numbers])
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), numbers)
        return context.get_dummy_value()

    return types.void(types.intp, types.UniTuple(types.intp, count)), generate


@intrinsic
def address_of(typing_context: Any, record: Any) -> Any:
    """Return the address of a record."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.ptrtoint(values[0], context.get_value_type(types.intp))

    return types.intp(record), generate
