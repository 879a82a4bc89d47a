"""The arithmetic of a decoder over memory by address: products, norms, rotations, attention of one query."""

from __future__ import annotations

import math

import numpy as np
from numba import carray

from engine.compiled import exponential
from engine.compiled.compiler import compiled, compiled_exactly, compiled_finite
from engine.compiled.intrinsics import float_of_bits, pointer_to_floats, pointer_to_integers, prefetch
from engine.compiled.layout import LINE
from engine.compiled.tiles import (
    LANES,
    byte_dot_1x4,
    byte_dot_1x8,
    byte_dot_2x4,
    byte_dot_4x4,
    dot_1x4,
    dot_1x8,
    dot_2x4,
    dot_2x8,
    dot_4x4,
    half_dot_1x4,
    half_dot_1x8,
    half_dot_2x4,
    half_dot_4x4,
    sum_1x1,
    sum_1x2,
    sum_2x1,
    sum_2x2,
)

_LOG2_E = np.float32(exponential.LOG2_E)
_LN2_HIGH, _LN2_LOW = np.float32(exponential.LN2_HIGH), np.float32(exponential.LN2_LOW)
_LOWEST, _HIGHEST = np.float32(exponential.LOWEST), np.float32(exponential.HIGHEST)
_TERMS = tuple(np.float32(term) for term in exponential.TERMS)
_MINUS_INFINITY = np.float32(-np.inf)
_ONE = np.float32(1.0)
_HALF = np.float32(0.5)


@compiled
def floats(address, size):
    """A view of float32 in memory."""
    return carray(pointer_to_floats(address), (size,))


@compiled
def integers(address, size):
    """A view of int64 in memory."""
    return carray(pointer_to_integers(address), (size,))


@compiled_exactly
def exp(x):
    """e to the x, of which the last bit or two may be wrong; never infinite.

    How: `engine.compiled.exponential`.
    """
    x = min(max(x, _LOWEST), _HIGHEST)
    n = np.floor(x * _LOG2_E + _HALF)
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    p = _TERMS[0]
    for term in _TERMS[1:]:
        p = p * r + term
    return (p * r * r + r + _ONE) * float_of_bits(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))


@compiled
def _four_rows(weights, weight_bytes, inputs, size, out, out_stride):
    if weight_bytes == 4:
        dot_4x4(weights, size, inputs, size, size, out, out_stride)
    elif weight_bytes == 2:
        half_dot_4x4(weights, size, inputs, size, size, out, out_stride)
    else:
        byte_dot_4x4(weights, size, inputs, size, size, out, out_stride)


@compiled
def _two_rows(weights, weight_bytes, inputs, size, out, out_stride):
    if weight_bytes == 4:
        dot_2x4(weights, size, inputs, size, size, out, out_stride)
    elif weight_bytes == 2:
        half_dot_2x4(weights, size, inputs, size, size, out, out_stride)
    else:
        byte_dot_2x4(weights, size, inputs, size, size, out, out_stride)


@compiled
def _one_row(weights, weight_bytes, inputs, size, out, out_stride):
    if weight_bytes == 4:
        dot_1x8(weights, size, inputs, size, size, out, out_stride)
    elif weight_bytes == 2:
        half_dot_1x8(weights, size, inputs, size, size, out, out_stride)
    else:
        byte_dot_1x8(weights, size, inputs, size, size, out, out_stride)


@compiled
def _half_a_row(weights, weight_bytes, inputs, size, out, out_stride):
    if weight_bytes == 4:
        dot_1x4(weights, size, inputs, size, size, out, out_stride)
    elif weight_bytes == 2:
        half_dot_1x4(weights, size, inputs, size, size, out, out_stride)
    else:
        byte_dot_1x4(weights, size, inputs, size, size, out, out_stride)


@compiled
def multiply(weights, weight_bytes, first, num_outputs, inputs, num_rows, size, out, out_stride):
    """out[row, output] = inputs[row] · weights[first + output] of [rows, size] and [all outputs, size].

    `weight_bytes`: 4 for float32, 2 for bfloat16, 1 for int8; `num_outputs`: a multiple of 4; `size`: a multiple of
    LANES, which is also the inputs' stride.
    """
    four = 4 * weight_bytes * size
    of_outputs = weights + weight_bytes * first * size
    output = 0
    while output < num_outputs:
        width = 8 if num_outputs - output >= 8 else 4
        row = 0
        while row < num_rows:
            of_rows, found = inputs + 4 * row * size, out + 4 * (row * out_stride + output)
            if num_rows - row >= 4:
                _four_rows(of_outputs, weight_bytes, of_rows, size, found, out_stride)
                if width == 8:
                    _four_rows(of_outputs + four, weight_bytes, of_rows, size, found + 16, out_stride)
                row += 4
            elif num_rows - row >= 2:
                _two_rows(of_outputs, weight_bytes, of_rows, size, found, out_stride)
                if width == 8:
                    _two_rows(of_outputs + four, weight_bytes, of_rows, size, found + 16, out_stride)
                row += 2
            else:
                if width == 8:
                    _one_row(of_outputs, weight_bytes, of_rows, size, found, out_stride)
                else:
                    _half_a_row(of_outputs, weight_bytes, of_rows, size, found, out_stride)
                row += 1
        of_outputs += weight_bytes * width * size
        output += width


@compiled
def normalise(inputs, weights, out, num_rows, size, epsilon):
    """out = inputs / sqrt(mean(inputs²) + epsilon) * weights, row by row of [rows, size]; also in place."""
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
def project(projection, first, num_outputs, inputs, num_rows, out, out_stride):
    """Some of a projection's outputs, from `first` on, of rows of its inputs."""
    size = projection.num_inputs
    multiply(projection.weight, projection.weight_bytes, first, num_outputs, inputs, num_rows, size, out, out_stride)
    if projection.scales != 0:
        scales = floats(projection.scales + 4 * first, num_outputs)
        for row in range(num_rows):
            target = floats(out + 4 * row * out_stride, num_outputs)
            for i in range(num_outputs):
                target[i] *= scales[i]
    if projection.bias != 0:
        for row in range(num_rows):
            add(out + 4 * row * out_stride, projection.bias + 4 * first, num_outputs)


@compiled
def rotate(head, rotations, head_dim):
    """Turn neighbouring pairs of a head's numbers by their cosines and sines, in place."""
    numbers, turns = floats(head, head_dim), floats(rotations, head_dim)
    for i in range(0, head_dim, 2):
        a, b, cosine, sine = numbers[i], numbers[i + 1], turns[i], turns[i + 1]
        numbers[i] = a * cosine - b * sine
        numbers[i + 1] = a * sine + b * cosine


@compiled
def copy(source, target, size):
    """Copy numbers."""
    found, out = floats(source, size), floats(target, size)
    for i in range(size):
        out[i] = found[i]


@compiled
def gate(gates, ups, out, size):
    """out = silu(gates) * ups."""
    gate_values, up_values, target = floats(gates, size), floats(ups, size), floats(out, size)
    for i in range(size):
        x = gate_values[i]
        target[i] = x / (_ONE + exp(-x)) * up_values[i]


@compiled
def add(total, added, size):
    """total += added."""
    target, source = floats(total, size), floats(added, size)
    for i in range(size):
        target[i] += source[i]


@compiled
def add_scaled(total, scales, added, size):
    """total += scales * added."""
    target, factors, source = floats(total, size), floats(scales, size), floats(added, size)
    for i in range(size):
        target[i] += factors[i] * source[i]


@compiled_finite
def _highest(values):
    found = _MINUS_INFINITY
    for i in range(values.size):
        found = max(found, values[i])
    return found


@compiled
def softmax(scores, start, end, size, scale):
    """Make scores [start, end) into weights that sum to 1, in place; all others of `size` become 0."""
    values = floats(scores + 4 * start, end - start)
    highest = _highest(values)
    for i in range(values.size):
        values[i] = exp((values[i] - highest) * scale)
    total = np.float32(0.0)
    for i in range(values.size):
        total += values[i]
    factor = _ONE / total
    for i in range(values.size):
        values[i] *= factor
    clear(scores, start)
    clear(scores + 4 * end, size - end)


@compiled
def clear(out, size):
    """Write zeros."""
    target = floats(out, size)
    for i in range(size):
        target[i] = 0.0


@compiled
def fetch(numbers, stride, count, size):
    """Have `count` times `size` numbers on their way, which lie `stride` numbers apart."""
    for i in range(count):
        for line in range(0, 4 * size, LINE):
            prefetch(numbers + 4 * i * stride + line)


@compiled
def weigh(weights, weight_stride, num_rows, values, stride, num_values, out, size):
    """out[row] += Σ weights[row, i] * values[i] of [num_values, size] that lie `stride` numbers apart, an even number.

    `size`: a multiple of LANES, which is also the stride of `out`.
    """
    row = 0
    while row < num_rows:
        num_together = 2 if num_rows - row >= 2 else 1
        of_rows, found = weights + 4 * row * weight_stride, out + 4 * row * size
        column = 0
        while column < size:
            part, target = values + 4 * column, found + 4 * column
            if size - column >= 2 * LANES:
                if num_together == 2:
                    sum_2x2(part, stride, of_rows, weight_stride, num_values, target, size)
                else:
                    sum_1x2(part, stride, of_rows, weight_stride, num_values, target, size)
                column += 2 * LANES
            else:
                if num_together == 2:
                    sum_2x1(part, stride, of_rows, weight_stride, num_values, target, size)
                else:
                    sum_1x1(part, stride, of_rows, weight_stride, num_values, target, size)
                column += LANES
        row += num_together


@compiled
def score(keys, stride, num_keys, queries, num_queries, size, out, out_stride):
    """out[query, key] = queries[query] · keys[key]; keys lie `stride` numbers apart, a multiple of 8 of them."""
    query = 0
    while query < num_queries:
        of_queries, found = queries + 4 * query * size, out + 4 * query * out_stride
        if num_queries - query >= 4:
            for key in range(0, num_keys, 4):
                dot_4x4(keys + 4 * key * stride, stride, of_queries, size, size, found + 4 * key, out_stride)
            query += 4
        elif num_queries - query >= 2:
            for key in range(0, num_keys, 8):
                dot_2x8(keys + 4 * key * stride, stride, of_queries, size, size, found + 4 * key, out_stride)
            query += 2
        else:
            for key in range(0, num_keys, 8):
                dot_1x8(keys + 4 * key * stride, stride, of_queries, size, size, found + 4 * key, out_stride)
            query += 1
