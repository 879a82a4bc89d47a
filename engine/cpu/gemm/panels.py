"""Arithmetic of a decoder on panels: numbers of up to 64 tokens side by side."""

from __future__ import annotations

import math

import numpy as np

from engine.cpu.gemm.arithmetic import clear, floats
from engine.cpu.gemm.matrix_unit import (
    PIECE_BYTES,
    TILE_INPUTS,
    TILE_OUTPUTS,
    TILE_TOKENS,
    bytes_to_halves,
    cut,
    product_1,
    product_2,
)
from engine.cpu.gemm.panel_tiles import (
    ROW_BYTES,
    WIDTH,
    outer_1,
    outer_2,
    outer_4,
    weigh_scores,
    widen_bytes,
    widen_halves,
)
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.compiler import compiled

_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)
_PAIR_BYTES = 4 * TILE_TOKENS


@compiled
def take_up(rows, size, count, panel):
    """Convert numbers [count, size] to a panel; the last token fills the missing lanes."""
    for start in range(0, size, LANES):
        target = floats(panel + ROW_BYTES * start, LANES * WIDTH)
        for token in range(WIDTH):
            source = floats(rows + 4 * (min(token, count - 1) * size + start), LANES)
            for i in range(LANES):
                target[i * WIDTH + token] = source[i]


@compiled
def put_down(panel, size, token, out):
    """Copy one token's numbers from a panel to consecutive memory."""
    source, target = floats(panel, (size - 1) * WIDTH + token + 1), floats(out, size)
    for i in range(size):
        target[i] = source[i * WIDTH + token]


@compiled
def normalise_panel(panel, weights, out, size, epsilon, factors):
    """Compute out = panel / sqrt(mean(panel²) + epsilon) * weights for each token; also in place.

    `factors` is a buffer of WIDTH numbers.
    """
    scale, factor = floats(weights, size), floats(factors, WIDTH)
    for token in range(WIDTH):
        factor[token] = _ZERO
    for i in range(size):
        source = floats(panel + ROW_BYTES * i, WIDTH)
        for token in range(WIDTH):
            factor[token] += source[token] * source[token]
    for token in range(WIDTH):
        factor[token] = _ONE / np.float32(math.sqrt(factor[token] / np.float32(size) + epsilon))
    for i in range(size):
        source, target, weight = floats(panel + ROW_BYTES * i, WIDTH), floats(out + ROW_BYTES * i, WIDTH), scale[i]
        for token in range(WIDTH):
            target[token] = source[token] * factor[token] * weight


@compiled
def rotate_panel(panel, turns, head_dim):
    """Rotate adjacent pairs of a head's features by their cosines and sines, in place."""
    for i in range(0, head_dim, 2):
        first, second = floats(panel + ROW_BYTES * i, WIDTH), floats(panel + ROW_BYTES * (i + 1), WIDTH)
        cosines, sines = floats(turns + ROW_BYTES * i, WIDTH), floats(turns + ROW_BYTES * (i + 1), WIDTH)
        for token in range(WIDTH):
            a, b, cosine, sine = first[token], second[token], cosines[token], sines[token]
            first[token] = a * cosine - b * sine
            second[token] = a * sine + b * cosine


@compiled
def add_products(factors, row_bytes, step_bytes, num_rows, panel, count, out, width):
    """Compute out[row] += Σ factors[row, i] * panel[i] of `count` features.

    `num_rows` is a multiple of 4, `width` of 16.
    """
    for row in range(0, num_rows, 4):
        of_rows, found = factors + row * row_bytes, out + ROW_BYTES * row
        token = 0
        while token < width:
            if width - token >= 4 * LANES and LANES > 8:
                outer_4(of_rows, row_bytes, step_bytes, panel + 4 * token, count, found + 4 * token)
                token += 4 * LANES
            elif width - token >= 2 * LANES:
                outer_2(of_rows, row_bytes, step_bytes, panel + 4 * token, count, found + 4 * token)
                token += 2 * LANES
            else:
                outer_1(of_rows, row_bytes, step_bytes, panel + 4 * token, count, found + 4 * token)
                token += LANES


@compiled
def widened(numbers, num_bytes, num_rows, width, room):
    """Return the address of rows of numbers as float32: the original, or a converted copy in `room`.

    In bfloat16, two rows are interleaved in pairs. `num_rows` is even, `width` a multiple of LANES.
    """
    if num_bytes == 4:
        return numbers
    if num_bytes == 1:
        widen_bytes(numbers, num_rows * width, room)
    else:
        for row in range(0, num_rows, 2):
            at = room + 4 * row * width
            widen_halves(numbers + 2 * row * width, width, at, at + 4 * width)
    return room


@compiled
def on_matrix_unit(projection, has_unit):
    """Return whether a projection runs on the matrix unit."""
    is_exact = projection.weight_bytes < 4
    # The halves of a gated projection are computed separately.
    fits = projection.num_inputs % TILE_INPUTS == 0 and projection.num_outputs % (2 * TILE_OUTPUTS) == 0
    return has_unit != 0 and is_exact and fits


@compiled
def cut_panel(panel, size, pieces):
    """Cut a panel's features for the matrix unit; `size` is even."""
    for i in range(0, size, 2):
        target = pieces + i // TILE_INPUTS * (TILE_INPUTS * PIECE_BYTES) + i % TILE_INPUTS // 2 * _PAIR_BYTES
        cut(panel + ROW_BYTES * i, target)


@compiled
def project_panel(projection, has_unit, first, count, panel, pieces, out, width, room):
    """Compute `count` outputs of a projection of a panel, from `first` on.

    `pieces` is the cut panel, used with the matrix unit; `room` is a buffer for these outputs' weights. `first` and
    `count` are multiples of TILE_OUTPUTS with the unit, otherwise of LANES.
    """
    size, num_bytes = projection.num_inputs, projection.weight_bytes
    if on_matrix_unit(projection, has_unit):
        weights = projection.weight + num_bytes * first * size
        for output in range(0, count, TILE_OUTPUTS):
            of_outputs, found = weights + num_bytes * output * size, out + ROW_BYTES * output
            if num_bytes == 1:
                bytes_to_halves(of_outputs, TILE_OUTPUTS * size, room)
                of_outputs = room
            _multiply_on_unit(of_outputs, size, pieces, found, width)
    else:
        clear(out, count * WIDTH)
        weights = projection.packed + num_bytes * first * size
        for output in range(0, count, LANES):
            of_outputs = widened(weights + num_bytes * output * size, num_bytes, size, LANES, room)
            add_products(of_outputs, 4, 4 * LANES, LANES, panel, size, out + ROW_BYTES * output, width)
    if projection.scales != 0:
        scales = floats(projection.scales + 4 * first, count)
        for output in range(count):
            found = floats(out + ROW_BYTES * output, WIDTH)
            for token in range(WIDTH):
                found[token] *= scales[output]
    if projection.bias != 0:
        bias = floats(projection.bias + 4 * first, count)
        for output in range(count):
            found = floats(out + ROW_BYTES * output, WIDTH)
            for token in range(WIDTH):
                found[token] += bias[output]


@compiled
def _multiply_on_unit(weights, size, pieces, out, width):
    """Compute 32 outputs of a cut panel."""
    column_bytes = PIECE_BYTES * TILE_INPUTS // (WIDTH // TILE_TOKENS)
    token = 0
    while token < width:
        of_tokens = pieces + token // TILE_TOKENS * column_bytes
        if width - token >= 2 * TILE_TOKENS:
            product_2(weights, 2 * size, of_tokens, size // TILE_INPUTS, out + 4 * token)
            token += 2 * TILE_TOKENS
        else:
            product_1(weights, 2 * size, of_tokens, size // TILE_INPUTS, out + 4 * token)
            token += TILE_TOKENS


@compiled
def weigh_panel(scores, num_keys, scale, highest, totals, factors):
    """Replace scores [keys, WIDTH] by softmax weights with `weigh_scores`, LANES tokens at a time."""
    for token in range(0, WIDTH, LANES):
        at = 4 * token
        weigh_scores(scores + at, num_keys, scale, highest + at, totals + at, factors + at)


@compiled
def scale_panel(panel, size, factors):
    """Multiply each token's numbers by its factor."""
    factor = floats(factors, WIDTH)
    for i in range(size):
        values = floats(panel + ROW_BYTES * i, WIDTH)
        for token in range(WIDTH):
            values[token] *= factor[token]
