"""Arithmetic of a decoder on memory by address: norms, gates, copies."""

from __future__ import annotations

import math

import numpy as np
from numba import carray

from engine.cpu.jit import exponential
from engine.cpu.jit.compiler import compiled, compiled_exactly
from engine.cpu.jit.intrinsics import (
    float_of_bits,
    half_of_float,
    pointer_to,
    prefetch,
)
from engine.cpu.jit.layout import LINE

_LOG2_E = np.float32(exponential.LOG2_E)
_LN2_HIGH, _LN2_LOW = np.float32(exponential.LN2_HIGH), np.float32(exponential.LN2_LOW)
_LOWEST, _HIGHEST = np.float32(exponential.LOWEST), np.float32(exponential.HIGHEST)
_TERMS = tuple(np.float32(term) for term in exponential.TERMS)
_ONE = np.float32(1.0)
_HALF = np.float32(0.5)
_GELU_LINEAR = np.float32(2.0 * math.sqrt(2.0 / math.pi))
_GELU_CUBIC = np.float32(2.0 * math.sqrt(2.0 / math.pi) * 0.044715)
_TANH_3, _TANH_5 = np.float32(-1.0 / 3.0), np.float32(2.0 / 15.0)
_TANH_7, _TANH_9 = np.float32(-17.0 / 315.0), np.float32(62.0 / 2835.0)
_TANH_NEAR = np.float32(0.0625)
"""Square of the largest number whose hyperbolic tangent is computed by its series."""


@compiled
def view(address, shape, dtype):
    """Return a view of numbers or records of a NumPy dtype in memory."""
    return carray(pointer_to(address, dtype), shape)


@compiled
def floats(address, size):
    """Return a view of float32 in memory."""
    return carray(pointer_to(address, np.float32), size)


@compiled
def integers(address, size):
    """Return a view of int64 in memory."""
    return carray(pointer_to(address, np.int64), size)


@compiled
def halves(address, size):
    """Return a view of the bits of bfloat16 in memory."""
    return carray(pointer_to(address, np.uint16), size)


@compiled_exactly
def exp(x):
    """Return e^x, accurate to the last bit or two; never infinite.

    The method is described in `engine.cpu.jit.exponential`.
    """
    x = min(max(x, _LOWEST), _HIGHEST)
    n = np.floor(x * _LOG2_E + _HALF)
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    p = _TERMS[0]
    for term in _TERMS[1:]:
        p = p * r + term
    return (p * r * r + r + _ONE) * float_of_bits(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))


@compiled
def together(num_rows, most_rows):
    """Return the number of rows, of `num_rows`, that share a tile: as many as fit, evenly divided."""
    num_tiles = (num_rows + most_rows - 1) // most_rows
    return (num_rows + num_tiles - 1) // num_tiles


@compiled
def normalise(inputs, weights, out, num_rows, size, epsilon):
    """Compute out = inputs / sqrt(mean(inputs²) + epsilon) * weights for each row of [rows, size]; also in place."""
    scale = floats(weights, size)
    for row in range(num_rows):
        source, target = floats(inputs + 4 * row * size, size), floats(out + 4 * row * size, size)
        total = np.float32(0.0)
        for i in range(size):
            total += source[i] * source[i]
        factor = _ONE / np.float32(math.sqrt(total / np.float32(size) + epsilon))
        for i in range(size):
            target[i] = source[i] * factor * scale[i]


@compiled
def copy(source, target, size):
    """Copy `size` numbers."""
    found, out = floats(source, size), floats(target, size)
    for i in range(size):
        out[i] = found[i]


@compiled
def scale(source, factor, target, size):
    """Copy `size` numbers times a factor."""
    found, out = floats(source, size), floats(target, size)
    for i in range(size):
        out[i] = found[i] * factor


@compiled
def gate(gates, ups, out, size):
    """Compute out = silu(gates) * ups."""
    gate_values, up_values, target = floats(gates, size), floats(ups, size), floats(out, size)
    for i in range(size):
        x = gate_values[i]
        target[i] = x / (_ONE + exp(-x)) * up_values[i]


@compiled
def silu(inputs, out, size):
    """Write silu of the inputs."""
    values, target = floats(inputs, size), floats(out, size)
    for i in range(size):
        x = values[i]
        target[i] = x / (_ONE + exp(-x))


@compiled
def gate_sigmoid(gates, values, size):
    """Multiply values by sigmoid(gates)."""
    gate_values, target = floats(gates, size), floats(values, size)
    for i in range(size):
        target[i] /= _ONE + exp(-gate_values[i])


@compiled
def gate_gelu(gates, ups, out, size):
    """Compute out = gelu(gates) * ups, where gelu is the approximation by tanh: x / (1 + e^(-2u))."""
    gate_values, up_values, target = floats(gates, size), floats(ups, size), floats(out, size)
    for i in range(size):
        x = gate_values[i]
        u = x * (_GELU_LINEAR + _GELU_CUBIC * x * x)
        target[i] = x / (_ONE + exp(-u)) * up_values[i]


@compiled
def gate_clamped(gates, ups, out, size, limit, gain):
    """Compute out = gates * sigmoid(gain * gates) * (ups + 1), with gates up to a limit and ups within ± it."""
    gate_values, up_values, target = floats(gates, size), floats(ups, size), floats(out, size)
    for i in range(size):
        x, up = gate_values[i], up_values[i]
        # In this order NaN stays NaN.
        x = limit if x > limit else x
        up = limit if up > limit else -limit if up < -limit else up
        target[i] = x / (_ONE + exp(-gain * x)) * (up + _ONE)


@compiled
def soften(values, size, factor, limit):
    """Replace each value v by limit * tanh(v * factor / limit)."""
    target = floats(values, size)
    for i in range(size):
        x = target[i] * factor / limit
        square = x * x
        near = x + x * square * (_TANH_3 + square * (_TANH_5 + square * (_TANH_7 + square * _TANH_9)))
        # The power loses the digits of small numbers, for which the series is exact.
        far = _ONE - np.float32(2.0) / (exp(np.float32(2.0) * x) + _ONE)
        found = near if square < _TANH_NEAR else far
        target[i] = limit * (found if x == x else x)


@compiled
def embed(table, num_bytes, token, factor, out, size):
    """Write a token's row of a table, float32 or bfloat16, times a factor."""
    target, at = floats(out, size), table + num_bytes * token * size
    if num_bytes == 2:
        bits = halves(at, size)
        for i in range(size):
            target[i] = float_of_bits(np.int32(np.uint32(bits[i]) << np.uint32(16))) * factor
    else:
        numbers = floats(at, size)
        for i in range(size):
            target[i] = numbers[i] * factor


@compiled
def add(total, added, size):
    """Add `added` to `total`."""
    target, source = floats(total, size), floats(added, size)
    for i in range(size):
        target[i] += source[i]


@compiled
def add_scaled(total, scales, added, size):
    """Add scales * added to `total`."""
    target, factors, source = floats(total, size), floats(scales, size), floats(added, size)
    for i in range(size):
        target[i] += factors[i] * source[i]


@compiled
def add_times(total, factor, added, size):
    """Add factor * added to `total`."""
    target, source = floats(total, size), floats(added, size)
    for i in range(size):
        target[i] += factor * source[i]


@compiled
def clear(out, size):
    """Write zeros."""
    target = floats(out, size)
    for i in range(size):
        target[i] = 0.0


@compiled
def fetch(numbers, num_bytes):
    """Prefetch numbers."""
    for line in range(0, num_bytes, LINE):
        prefetch(numbers + line)


@compiled
def put(source, stride, count, out, out_stride, num_bytes):
    """Copy numbers from a stride to another stride; `num_bytes` 2 rounds them to bfloat16."""
    numbers = floats(source, (count - 1) * stride + 1)
    if num_bytes == 4:
        target = floats(out, (count - 1) * out_stride + 1)
        for i in range(count):
            target[i * out_stride] = numbers[i * stride]
    else:
        rounded = halves(out, (count - 1) * out_stride + 1)
        for i in range(count):
            rounded[i * out_stride] = half_of_float(numbers[i * stride])


@compiled
def wipe(out, count, stride, num_bytes):
    """Write `count` zeros at a stride; `num_bytes` is the size of a number, 4 or 2."""
    if num_bytes == 4:
        target = floats(out, count * stride)
        for i in range(count):
            target[i * stride] = 0.0
    else:
        rounded = halves(out, count * stride)
        for i in range(count):
            rounded[i * stride] = 0
