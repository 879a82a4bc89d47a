"""Loops over tiles of keys and values that lie in blocks: scores, and weighted sums."""

from __future__ import annotations

from engine.cpu.gemm.arithmetic import fetch, integers, together
from engine.cpu.gemm.micro_kernel import WEIGHT_BYTES, WeightKind
from engine.cpu.gemm.product_tiles import PRODUCTS, SCORES, WIDE, block_tile, product_tile
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.compiler import Compiled, inner

_MOST_ROWS, _WIDE_ROWS, _MOST_QUERIES = PRODUCTS.most_rows, WIDE.most_rows, SCORES.most_rows
_NEAR_BLOCKS = 16
"""Number of value blocks that fit the L1 cache beside their weights."""


def summer(kind: WeightKind) -> Compiled:
    """Return the loops over tiles of weighted sums of values of a kind."""
    tile_4, tile_2, tile_1 = (block_tile(kind, count, WIDE if count == 4 else PRODUCTS) for count in (4, 2, 1))
    kv_bytes = WEIGHT_BYTES[kind]

    @inner
    def weigh(weights, weight_stride, num_rows, pool, table, num_blocks, block_bytes, block_size, out, size, ahead):
        """Compute out[row] += Σ weights[row, i] * values[i] over the blocks listed in the table, int64, in order.

        Block 0 lies at `pool` and others at multiples of `block_bytes`, each with values [block_size, size].
        `block_size` is even; in bfloat16 two values are interleaved in pairs. `size`, a multiple of LANES, is also the
        stride of `out`. `ahead` is the address of block 0 of the numbers to prefetch meanwhile, or 0.
        """
        step, row_bytes, out_bytes = kv_bytes * size, 4 * weight_stride, 4 * size
        numbers = integers(table, num_blocks)
        # Values stay in the cache until all rows have used them.
        for block in range(0, num_blocks, _NEAR_BLOCKS):
            blocks, at = min(_NEAR_BLOCKS, num_blocks - block), table + 8 * block
            if ahead != 0:
                for index in range(block, block + blocks):
                    fetch(ahead + numbers[index] * block_bytes, kv_bytes * size * block_size)
            row = 0
            while row < num_rows:
                count = together(num_rows - row, _MOST_ROWS)
                rows, found = weights + row * row_bytes + 4 * block * block_size, out + row * out_bytes
                column = 0
                while column < size:
                    part, into, left = pool + 4 * column, found + 4 * column, size - column
                    width = 4 if count <= _WIDE_ROWS and left >= 4 * LANES else 2 if left >= 2 * LANES else 1
                    if width == 4:
                        tile_4(part, at, block_bytes, step, rows, row_bytes, block_size, into, out_bytes, count, blocks)
                    elif width == 2:
                        tile_2(part, at, block_bytes, step, rows, row_bytes, block_size, into, out_bytes, count, blocks)
                    else:
                        tile_1(part, at, block_bytes, step, rows, row_bytes, block_size, into, out_bytes, count, blocks)
                    column += width * LANES
                row += count

    return weigh


def scorer(kind: WeightKind) -> Compiled:
    """Return the loops over tiles of scores of keys of a kind."""
    tile_2, tile_1 = (product_tile(kind, count, SCORES, are_keys=True) for count in (2, 1))

    @inner
    def score(keys, step, vector, queries, num_queries, size, out, out_stride):
        """Compute out[query, key] = queries[query] · keys[key] of two vectors of LANES keys, `vector` bytes apart.

        If `vector` is 0, only one vector is computed. Keys lie feature by feature, `step` bytes apart; in bfloat16 two
        features are interleaved in pairs.
        """
        query = 0
        while query < num_queries:
            count = together(num_queries - query, _MOST_QUERIES)
            of_queries, found = queries + 4 * query * size, out + 4 * query * out_stride
            if vector != 0:
                tile_2(keys, step, vector, of_queries, 4 * size, size, found, 4 * out_stride, count, 0)
            else:
                tile_1(keys, step, 0, of_queries, 4 * size, size, found, 4 * out_stride, count, 0)
            query += count

    return score
