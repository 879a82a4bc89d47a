"""Products of a few rows with quantized weights (int4 in groups, int8 or fp8), dequantized in registers.

Theory of operation
-------------------
With few rows a product takes as long as reading its weight, so the weight is read packed and dequantized in registers.
The weight is the left operand (BLOCK_N outputs by a tile of inputs) and the rows are the right one. Converted numbers
then enter the matrix units directly. int8 and fp8 codes are exact in bfloat16 and float16, and the scale is applied to
the float32 sum. A 4-bit weight becomes code * scale + offset in bfloat16, or in float32 for rows of other formats. Bits
set above a code make it the number 128 + code, or 2**23 + code, without a conversion. Float32 takes up to 1.4 times as
long on an H200, and a scale on each group's product up to 1.9 times.

int4 weights lie in tiles of 64 inputs, [tiles, out, 32] bytes. The low halves of a tile's bytes are its first 32
inputs and the high halves the others, so nothing has to be interleaved. A weight with many inputs and few outputs is
cut along its inputs into segments (split K), whose sums are added in order. The cut depends only on the weight's shape,
so that a row's numbers do not depend on its batch. Tests run it through Triton's interpreter.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 64
"""Number of inputs of one tile."""
_HALF = TILE // 2
_BLOCK_N = 64
_MIN_ROWS = 16  # the smallest N that tl.dot accepts
_MAX_ROWS = 64
_MAX_SEGMENTS = 8
_PROGRAMS_EACH = 4
"""Target number of programs per processor, so that enough reads of the weight are in flight."""
_BYTES_TILE = 128
_INT4_STAGES = 3
_BYTES_STAGES = 4
_MIN_TILES = 4
"""Minimum number of tiles in a segment; a shorter one is not worth its partial sums."""


@triton.jit(do_not_specialize=["num_rows"])
def multiply_int4(
    out_ptr,
    inputs_ptr,
    packed_ptr,
    scales_ptr,
    zeros_ptr,
    num_rows,
    num_in,
    num_out,
    input_stride,
    tiles_each,
    GROUP_SIZE: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """Compute BLOCK_N outputs × BLOCK_M rows over one segment of the inputs of an int4 weight.

    `out_ptr` is float32 [segments, rows, outputs].
    """
    outs = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    segment = tl.program_id(2)
    is_out = outs < num_out
    is_row = rows < num_rows
    lanes = tl.arange(0, HALF)
    total = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
    num_tiles = (num_in + 2 * HALF - 1) // (2 * HALF)
    for tile in range(segment * tiles_each, tl.minimum((segment + 1) * tiles_each, num_tiles)):
        packed_at = (tile * num_out + outs.to(tl.int64))[:, None] * HALF + lanes[None, :]
        packed = tl.load(packed_ptr + packed_at, mask=is_out[:, None], other=0).to(tl.int32)
        for half in tl.static_range(2):
            first = tile * 2 * HALF + half * HALF
            columns = first + lanes
            inputs_at = rows[None, :].to(tl.int64) * input_stride + columns[:, None]
            is_input = (columns < num_in)[:, None] & is_row[None, :]
            inputs = tl.load(inputs_ptr + inputs_at, mask=is_input, other=0.0)
            # The last tile may be only half full.
            is_group = is_out & (outs * 0 + first < num_in)
            group_at = first // GROUP_SIZE * num_out + outs
            scales = tl.load(scales_ptr + group_at, mask=is_group, other=0.0).to(tl.float32)
            offsets = -tl.load(zeros_ptr + group_at, mask=is_group, other=0.0).to(tl.float32) * scales
            codes = (packed >> (4 * half)) & 15
            if inputs_ptr.dtype.element_ty == tl.bfloat16:
                numbers = (codes.to(tl.int16) | 0x4300).to(tl.bfloat16, bitcast=True) - 128.0
                weight = numbers * scales.to(tl.bfloat16)[:, None] + offsets.to(tl.bfloat16)[:, None]
            else:
                numbers = (codes | 0x4B000000).to(tl.float32, bitcast=True) - 8388608.0
                weight = numbers * scales[:, None] + offsets[:, None]
            total += tl.dot(weight.to(inputs.dtype), inputs, input_precision="ieee").to(tl.float32)
    out_at = (segment * num_rows + rows)[None, :].to(tl.int64) * num_out + outs[:, None]
    tl.store(out_ptr + out_at, total, mask=is_out[:, None] & is_row[None, :])


@triton.jit(do_not_specialize=["num_rows"])
def multiply_bytes(
    out_ptr,
    inputs_ptr,
    codes_ptr,
    scales_ptr,
    num_rows,
    num_in,
    num_out,
    input_stride,
    tiles_each,
    TILE_IN: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """Compute BLOCK_N outputs × BLOCK_M rows over one segment of int8 or fp8 codes [out, in] with a scale per output.

    `out_ptr` is float32 [segments, rows, outputs].
    """
    outs = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    segment = tl.program_id(2)
    is_out = outs < num_out
    is_row = rows < num_rows
    lanes = tl.arange(0, TILE_IN)
    total = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
    num_tiles = (num_in + TILE_IN - 1) // TILE_IN
    for tile in range(segment * tiles_each, tl.minimum((segment + 1) * tiles_each, num_tiles)):
        columns = tile * TILE_IN + lanes
        is_column = columns < num_in
        codes_at = outs[:, None].to(tl.int64) * num_in + columns[None, :]
        codes = tl.load(codes_ptr + codes_at, mask=is_out[:, None] & is_column[None, :], other=0.0)
        inputs_at = rows[None, :].to(tl.int64) * input_stride + columns[:, None]
        inputs = tl.load(inputs_ptr + inputs_at, mask=is_column[:, None] & is_row[None, :], other=0.0)
        total += tl.dot(codes.to(inputs.dtype), inputs, input_precision="ieee").to(tl.float32)
    total = total * tl.load(scales_ptr + outs, mask=is_out, other=0.0)[:, None]
    out_at = (segment * num_rows + rows)[None, :].to(tl.int64) * num_out + outs[:, None]
    tl.store(out_ptr + out_at, total, mask=is_out[:, None] & is_row[None, :])


@triton.jit
def quantize_row(codes_ptr, scales_ptr, inputs_ptr, input_stride, SIZE: tl.constexpr, SIZE_PADDED: tl.constexpr):
    """Quantize one row to fp8 codes with the scale that maps its largest magnitude to 448."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, SIZE_PADDED)
    is_column = columns < SIZE
    values = tl.load(inputs_ptr + row * input_stride + columns, mask=is_column, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), axis=0) / 448.0, 1e-12)
    # Rounding may exceed the largest fp8 number, which would become NaN.
    codes = tl.minimum(tl.maximum(values / scale, -448.0), 448.0)
    tl.store(codes_ptr + row * SIZE + columns, codes.to(codes_ptr.dtype.element_ty), mask=is_column)
    tl.store(scales_ptr + row, scale)


def pack_int4(codes: torch.Tensor) -> torch.Tensor:
    """Pack uint8 codes [out, in] in 0 .. 15 into tiles, uint8 [tiles, out, 32]; missing inputs become 0."""
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[1] % TILE))
    tiles = codes.view(codes.shape[0], -1, 2, _HALF).permute(1, 0, 2, 3)
    return (tiles[:, :, 0] | tiles[:, :, 1] << 4).contiguous()


def num_segments(num_out: int, num_in: int, num_processors: int) -> int:
    """Return the number of segments of the inputs that gives every processor enough programs."""
    wanted = max(1, _PROGRAMS_EACH * num_processors // triton.cdiv(num_out, _BLOCK_N))
    useful = max(1, triton.cdiv(num_in, TILE) // _MIN_TILES)
    segments = 1
    while 2 * segments <= min(wanted, useful, _MAX_SEGMENTS):
        segments *= 2
    return segments


def int4_product(
    inputs: torch.Tensor,
    packed: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    *,
    group_size: int,
    segments: int,
) -> torch.Tensor:
    """Compute inputs [T, in] times an int4 weight.

    Args:
        inputs: [T, in].
        packed: Codes packed by `pack_int4`.
        scales: bfloat16 [groups, out].
        zeros: float16 [groups, out], in units of codes.
        group_size: Inputs of a group.
        segments: Parts of the inputs.

    Returns:
        float32 [T, out].
    """
    num_rows, num_in = inputs.shape
    num_out = packed.shape[1]
    block_rows = _rows_each(num_rows)
    block_out = _BLOCK_N if block_rows == _MIN_ROWS else 2 * _BLOCK_N
    out, grid, tiles_each = _plan(inputs, num_out, segments, TILE, block_out)
    multiply_int4[grid](
        out,
        inputs,
        packed,
        scales,
        zeros,
        num_rows,
        num_in,
        num_out,
        inputs.stride(0),
        tiles_each,
        GROUP_SIZE=group_size,
        HALF=_HALF,
        BLOCK_N=block_out,
        BLOCK_M=block_rows,
        num_stages=_INT4_STAGES,
        num_warps=4 if block_out == _BLOCK_N else 8,
    )
    return _added(out)


def byte_product(inputs: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, *, segments: int) -> torch.Tensor:
    """Multiply inputs [T, in] by int8 or float8_e4m3fn codes [out, in] with scales float32 [out]: float32 [T, out]."""
    num_rows, num_in = inputs.shape
    num_out = codes.shape[0]
    out, grid, tiles_each = _plan(inputs, num_out, segments, _BYTES_TILE)
    multiply_bytes[grid](
        out,
        inputs,
        codes,
        scales,
        num_rows,
        num_in,
        num_out,
        inputs.stride(0),
        tiles_each,
        TILE_IN=_BYTES_TILE,
        BLOCK_N=_BLOCK_N,
        BLOCK_M=_rows_each(num_rows),
        num_stages=_BYTES_STAGES,
    )
    return _added(out)


def quantize_rows_fused(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize rows [N, K] to float8_e4m3fn [N, K] and float32 scales [N, 1] in one kernel."""
    num_rows, size = rows.shape
    codes = torch.empty(num_rows, size, dtype=torch.float8_e4m3fn, device=rows.device)
    scales = torch.empty(num_rows, 1, dtype=torch.float32, device=rows.device)
    if num_rows:
        quantize_row[(num_rows,)](
            codes, scales, rows, rows.stride(0), SIZE=size, SIZE_PADDED=triton.next_power_of_2(size)
        )
    return codes, scales


def _rows_each(num_rows: int) -> int:
    return min(_MAX_ROWS, max(_MIN_ROWS, 1 << (num_rows - 1).bit_length()))


def _plan(
    inputs: torch.Tensor, num_out: int, segments: int, tile: int, block_out: int = _BLOCK_N
) -> tuple[torch.Tensor, tuple[int, int, int], int]:
    """Return the buffer of partial sums, the grid, and the number of tiles of a segment."""
    if inputs.stride(1) != 1:
        raise ValueError("rows must be contiguous")
    num_rows, num_in = inputs.shape
    out = torch.empty(segments, num_rows, num_out, dtype=torch.float32, device=inputs.device)
    grid = (triton.cdiv(num_out, block_out), triton.cdiv(num_rows, _rows_each(num_rows)), segments)
    return out, grid, triton.cdiv(triton.cdiv(num_in, tile), segments)


def _added(partial: torch.Tensor) -> torch.Tensor:
    return partial[0] if partial.shape[0] == 1 else partial.sum(0)
