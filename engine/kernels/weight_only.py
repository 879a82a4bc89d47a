"""Products of a few rows with quantized weights (int4 in groups, int8 or fp8), dequantized in registers.

Theory of operation
-------------------
With few rows a product takes as long as reading its weight, so the weight is read packed and dequantized in registers.
The weight is the left operand (BLOCK_N outputs by a slice of inputs) and the rows are the right one. Converted numbers
then enter the matrix units directly. int8 and fp8 codes are exact in bfloat16 and float16, and the scale is applied to
the float32 sum.

int4 weights lie in tiles of 256 inputs, int32 [tiles, out, 32]. Bits 4j to 4j+3 of a tile's word w hold the code of its
input 32j + w. One load of words thus gives eight slices of 32 inputs, each of one group, with one scale for an output.
For bfloat16 rows, six instructions dequantize two codes: bits set above a code make it the number 128 + code without a
conversion, and two multiply-adds give code * scale + offset. Other rows take float32 arithmetic.

A weight with many inputs and few outputs is cut along its inputs into segments (split K), whose sums are added in
order. The cut depends only on the weight's shape, so that a row's numbers do not depend on its batch. Tests run all
but the bfloat16 instructions through Triton's interpreter.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 256
"""Number of inputs of one tile of an int4 weight."""
_SLICE = 32
"""Number of inputs of one slice of a tile, and of words for each output."""
_BLOCK_N = 64
_INT4_BLOCK_N = 128
_MIN_ROWS = 16  # the smallest N that tl.dot accepts
_MAX_ROWS = 64
_MAX_SEGMENTS = 8
_PROGRAMS_EACH = 4.0
_INT4_PROGRAMS_EACH = 1.5
"""Target number of programs per processor, so that enough reads of the weight are in flight."""
_BYTES_TILE = 128
_INT4_STAGES = 3
_BYTES_STAGES = 4
_MIN_INPUTS = 256
"""Minimum number of inputs of a segment; a shorter one is not worth its partial sums."""
_DEQUANTIZE = tl.constexpr("""
{
    .reg .b32 pair, one, minus_128;
    mov.b32 one, 0x3F803F80;
    mov.b32 minus_128, 0xC300C300;
    prmt.b32 pair, $1, $2, $5;
    shr.b32 pair, pair, $7;
    lop3.b32 pair, pair, 0x000F000F, 0x43004300, 0xEA;
    fma.rn.bf16x2 pair, pair, one, minus_128;
    fma.rn.bf16x2 $0, pair, $3, $4;
}
""")
"""PTX: of two words ($1, $2) the halves that $5 selects, shifted by $7 bits; their low codes as bfloat16 numbers times
scales ($3) plus offsets ($4)."""
_OPERANDS = tl.constexpr("=r,r,r,r,r,r,r,r,r")


@triton.jit
def slice_in_bfloat16(words, scales, offsets, PART: tl.constexpr):
    """Dequantize slice PART of a tile: words int32 [outputs, 32], scales and offsets bfloat16 of the same shape."""
    halves = tl.full(words.shape, 0x7632 if PART >= 4 else 0x5410, tl.int32)
    shift = tl.full(words.shape, 4 * (PART % 4), tl.int32)
    return tl.inline_asm_elementwise(
        _DEQUANTIZE, _OPERANDS, [words, scales, offsets, halves, shift], dtype=tl.bfloat16, is_pure=True, pack=2
    )


@triton.jit(do_not_specialize=["num_rows"])
def multiply_int4(
    out_ptr,
    inputs_ptr,
    packed_ptr,
    scales_ptr,
    num_rows,
    num_in,
    num_out,
    input_stride,
    tiles_each,
    GROUP_SIZE: tl.constexpr,
    SLICE: tl.constexpr,
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
    lanes = tl.arange(0, SLICE)
    total = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
    num_tiles = (num_in + 8 * SLICE - 1) // (8 * SLICE)
    for tile in range(segment * tiles_each, tl.minimum((segment + 1) * tiles_each, num_tiles)):
        words_at = (tile * num_out + outs.to(tl.int64))[:, None] * SLICE + lanes[None, :]
        words = tl.load(packed_ptr + words_at, mask=is_out[:, None], other=0)
        for part in tl.static_range(8):
            first = (tile * 8 + part) * SLICE
            columns = first + lanes
            inputs_at = rows[None, :].to(tl.int64) * input_stride + columns[:, None]
            is_input = (columns < num_in)[:, None] & is_row[None, :]
            inputs = tl.load(inputs_ptr + inputs_at, mask=is_input, other=0.0)
            # The last tile may hold fewer slices.
            is_group = is_out & (outs * 0 + first < num_in)
            both = tl.load(scales_ptr + first // GROUP_SIZE * num_out + outs, mask=is_group, other=0)
            scales = (both << 16).to(tl.float32, bitcast=True)[:, None]
            zeros = (both >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)[:, None]
            if inputs_ptr.dtype.element_ty == tl.bfloat16:
                scales_16 = tl.broadcast_to(scales.to(tl.bfloat16), [BLOCK_N, SLICE])
                offsets_16 = tl.broadcast_to((-zeros * scales).to(tl.bfloat16), [BLOCK_N, SLICE])
                weight = slice_in_bfloat16(words, scales_16, offsets_16, part)
            else:
                codes = (words >> (4 * part)) & 15
                weight = (codes.to(tl.float32) - zeros) * scales
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
    """Pack uint8 codes [out, in] in 0 .. 15 into tiles, int32 [tiles, out, 32]; missing inputs become 0."""
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[1] % TILE))
    parts = codes.view(codes.shape[0], -1, 8, _SLICE).permute(1, 0, 3, 2)
    pairs = parts[..., ::2] | parts[..., 1::2] << 4
    return pairs.contiguous().view(torch.int32).squeeze(3)


def pack_scales(scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    """Pack scales and zeros [out, groups] as int32 [groups, out]: zeros in float16 above scales in bfloat16."""
    both = scales.t().to(torch.bfloat16).view(torch.int16), zeros.t().to(torch.float16).view(torch.int16)
    return torch.stack(both, 2).view(torch.int32).squeeze(2)


def num_segments(num_out: int, num_in: int, num_processors: int, *, is_int4: bool = False) -> int:
    """Return the number of segments of the inputs that gives every processor enough programs."""
    block_out, programs_each = (_INT4_BLOCK_N, _INT4_PROGRAMS_EACH) if is_int4 else (_BLOCK_N, _PROGRAMS_EACH)
    wanted = max(1, int(programs_each * num_processors) // triton.cdiv(num_out, block_out))
    useful = max(1, num_in // _MIN_INPUTS)
    segments = 1
    while 2 * segments <= min(wanted, useful, _MAX_SEGMENTS):
        segments *= 2
    return segments


def int4_product(
    inputs: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, *, group_size: int, segments: int
) -> torch.Tensor:
    """Compute inputs [T, in] times an int4 weight.

    Args:
        inputs: [T, in].
        packed: Codes packed by `pack_int4`.
        scales: Scales and zeros packed by `pack_scales`; zeros in units of codes.
        group_size: Inputs of a group, a multiple of 32.
        segments: Parts of the inputs.

    Returns:
        float32 [T, out].
    """
    num_rows, num_in = inputs.shape
    num_out = packed.shape[1]
    out, grid, tiles_each = _plan(inputs, num_out, segments, TILE, _INT4_BLOCK_N)
    multiply_int4[grid](
        out,
        inputs,
        packed,
        scales,
        num_rows,
        num_in,
        num_out,
        inputs.stride(0),
        tiles_each,
        GROUP_SIZE=group_size,
        SLICE=_SLICE,
        BLOCK_N=_INT4_BLOCK_N,
        BLOCK_M=_rows_each(num_rows),
        num_stages=_INT4_STAGES,
        num_warps=4,
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
