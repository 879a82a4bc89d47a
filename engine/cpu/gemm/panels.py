"""The arithmetic of a decoder over panels: numbers of up to 64 tokens side by side."""

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
    """Lay out numbers [count, size] as a panel; the last token stands in for those that are missing."""
    for start in range(0, size, LANES):
        target = floats(panel + ROW_BYTES * start, LANES * WIDTH)
        for token in range(WIDTH):
            source = floats(rows + 4 * (min(token, count - 1) * size + start), LANES)
            for i in range(LANES):
                target[i * WIDTH + token] = source[i]


@compiled
def put_down(panel, size, token, out):
    """One token's numbers of a panel, one behind the other."""
    source, target = floats(panel, (size - 1) * WIDTH + token + 1), floats(out, size)
    for i in range(size):
        target[i] = source[i * WIDTH + token]


@compiled
def normalise_panel(panel, weights, out, size, epsilon, factors):
    """out = panel / sqrt(mean(panel²) + epsilon) * weights, token by token; also in place. `factors`: room."""
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
    """Turn neighbouring pairs of a head's features by their cosines and sines, in place."""
    for i in range(0, head_dim, 2):
        first, second = floats(panel + ROW_BYTES * i, WIDTH), floats(panel + ROW_BYTES * (i + 1), WIDTH)
        cosines, sines = floats(turns + ROW_BYTES * i, WIDTH), floats(turns + ROW_BYTES * (i + 1), WIDTH)
        for token in range(WIDTH):
            a, b, cosine, sine = first[token], second[token], cosines[token], sines[token]
            first[token] = a * cosine - b * sine
            second[token] = a * sine + b * cosine


@compiled
def add_products(factors, row_bytes, step_bytes, num_rows, panel, count, out, width):
    """out[row] += Σ factors[row, i] * panel[i] of `count`; `num_rows`: a multiple of 4, `width`: of 16."""
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
    """Where rows of numbers of so many bytes lie as float32: there, or in a room for them.

    Of bfloat16, two rows stand in pairs. `num_rows`: even, `width`: a multiple of LANES.
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
    """Whether a projection is computed there."""
    is_exact = projection.weight_bytes < 4
    # Halves of outputs are computed apart where one gates the other.
    fits = projection.num_inputs % TILE_INPUTS == 0 and projection.num_outputs % (2 * TILE_OUTPUTS) == 0
    return has_unit != 0 and is_exact and fits


@compiled
def cut_panel(panel, size, pieces):
    """A panel's features, cut for the matrix unit; `size`: an even number."""
    for i in range(0, size, 2):
        target = pieces + i // TILE_INPUTS * (TILE_INPUTS * PIECE_BYTES) + i % TILE_INPUTS // 2 * _PAIR_BYTES
        cut(panel + ROW_BYTES * i, target)


@compiled
def project_panel(projection, has_unit, first, count, panel, pieces, out, width, room):
    """`count` of a projection's outputs of a panel, from `first` on; `pieces` are the panel cut, if the unit is used.

    There `first` and `count` are multiples of TILE_OUTPUTS, otherwise of LANES. `room`: for these outputs' weights.
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
    """32 outputs of a panel that was cut."""
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
    """Make scores [keys, WIDTH] into weights, as `weigh_scores` of a few tokens."""
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
