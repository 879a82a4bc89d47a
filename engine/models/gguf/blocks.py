"""Conversion of GGUF's quantized blocks to codes, scales and offsets: weight = code * scale + offset.

One layout serves all formats: a code of one byte for each weight, and a scale and an offset in float32 for each group
of 16 or 32 weights. Products and sums are exact in float32 except for formats with stored minima, which round once.
The formats are those of ggml (`ggml-common.h`, `ggml-quants.c`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from engine.models.gguf.block_types import BlockType

_NIBBLE = 15
_PIECE_NUMBERS = 1 << 18
"""Number of weights that are converted at once, so that intermediate results stay in the processor's cache."""
_SCALES_AT_3K = slice(96, 108)
_NONLINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""Values of the 16 codes of IQ4_NL and IQ4_XS, in units of the scale."""
_INT8_ZERO = 128
_MXFP4_BYTES = 16
"""Bytes of a block's codes, behind that of its exponent."""
_MXFP4_DOUBLES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Values of the 16 codes of MXFP4, times 2."""
_MXFP4_BIAS = 128
"""Bias of an exponent, and 1 for the doubled values."""


@dataclass(frozen=True, slots=True)
class BlockValues:
    """Codes of a weight with a scale and an offset for each group of a row's weights."""

    codes: torch.Tensor
    """uint8 [rows, in]."""
    scales: torch.Tensor
    """float32 [rows, groups]."""
    offsets: torch.Tensor
    """float32 [rows, groups]."""
    bits: int
    """4 or 8: bits that the codes need."""

    def numbers(self) -> torch.Tensor:
        """Return the weights as float32 [rows, in]."""
        rows, groups = self.scales.shape
        numbers = self.codes.view(rows, groups, -1).float()
        return numbers.mul_(self.scales.unsqueeze(2)).add_(self.offsets.unsqueeze(2)).flatten(1)


@dataclass(frozen=True, slots=True)
class Mxfp4Values:
    """Numbers of MXFP4 with an exponent for each group of 32 of a row's weights (OCP Microscaling Formats 1.0)."""

    codes: torch.Tensor
    """uint8 [rows, in / 2]: two codes a byte, the first in the lower half."""
    exponents: torch.Tensor
    """uint8 [rows, in / 32]."""


_Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Codes [blocks, numbers], scales [blocks, groups] and offsets [blocks, groups] of blocks."""


def block_values(raw: torch.Tensor, kind: BlockType) -> BlockValues:
    """Convert rows of quantized blocks, uint8 [rows, bytes of a row]."""
    num_rows = raw.shape[0]
    row_blocks = raw.shape[1] // kind.num_bytes
    codes = torch.empty(num_rows, row_blocks * kind.num_numbers, dtype=torch.uint8)
    scales, offsets = torch.empty(2, num_rows, codes.shape[1] // kind.group_size).unbind(0)
    unpack = _UNPACKERS[kind.name]
    for rows in _pieces(num_rows, codes.shape[1]):
        parts = unpack(raw[rows].reshape(-1, kind.num_bytes))
        for target, part in zip((codes, scales, offsets), parts, strict=True):
            target[rows] = part.reshape(-1, target.shape[1])
    return BlockValues(codes, scales, offsets, kind.bits)


def mxfp4_values(raw: torch.Tensor) -> Mxfp4Values:
    """Return the codes and exponents of rows of MXFP4 blocks, uint8 [rows, bytes of a row].

    A byte of a block holds weight i in its lower half and weight i + 16 in its upper one.
    """
    blocks = raw.reshape(raw.shape[0], -1, 1 + _MXFP4_BYTES)
    codes = _nibbles(blocks[:, :, 1:].reshape(-1, _MXFP4_BYTES)).view(raw.shape[0], -1, 2)
    return Mxfp4Values(codes[:, :, 0] | codes[:, :, 1] << 4, blocks[:, :, 0].contiguous())


def write_numbers(raw: torch.Tensor, kind: BlockType, out: torch.Tensor) -> None:
    """Write the weights of rows [rows, bytes of a row] to `out` [rows, in], of any floating dtype and device."""
    for rows in _pieces(*out.shape):
        piece = raw[rows]
        if kind.is_quantized:
            out[rows] = block_values(piece, kind).numbers()
        else:
            out[rows] = plain_numbers(piece, kind)


def plain_numbers(raw: torch.Tensor, kind: BlockType) -> torch.Tensor:
    """Return rows of an unquantized format, uint8 [rows, bytes of a row], as floating-point numbers."""
    return raw.contiguous().view(_PLAIN[kind.name])


def _pieces(num_rows: int, row_size: int) -> list[slice]:
    step = max(1, _PIECE_NUMBERS // row_size)
    return [slice(start, start + step) for start in range(0, num_rows, step)]


def _halves(blocks: torch.Tensor, start: int, count: int = 1) -> list[torch.Tensor]:
    """Return `count` float16 numbers of each block as float32, each [blocks, 1]."""
    field = blocks[:, start : start + 2 * count].contiguous().view(torch.float16).float()
    return list(torch.split(field, 1, 1))


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """Return the low nibbles of all bytes, then the high ones: [blocks, bytes] to [blocks, 2 * bytes]."""
    return torch.cat((packed & _NIBBLE, packed >> 4), 1)


def _chunked_nibbles(packed: torch.Tensor, chunk: int) -> torch.Tensor:
    """Return low, then high nibbles of each chunk of bytes."""
    chunks = packed.view(packed.shape[0], -1, chunk)
    return torch.stack((chunks & _NIBBLE, chunks >> 4), 2).flatten(1)


def _q4_0(blocks: torch.Tensor) -> _Parts:
    (scales,) = _halves(blocks, 0)
    return _nibbles(blocks[:, 2:]), scales, -8 * scales


def _q4_1(blocks: torch.Tensor) -> _Parts:
    scales, offsets = _halves(blocks, 0, 2)
    return _nibbles(blocks[:, 4:]), scales, offsets


def _fifth_bits(field: torch.Tensor) -> torch.Tensor:
    """Return 16 for each set bit of 4 bytes, else 0: [blocks, 32]."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return (((field.unsqueeze(2) >> shifts) & 1) << 4).flatten(1)


def _q5_0(blocks: torch.Tensor) -> _Parts:
    (scales,) = _halves(blocks, 0)
    return _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6]), scales, -16 * scales


def _q5_1(blocks: torch.Tensor) -> _Parts:
    scales, offsets = _halves(blocks, 0, 2)
    return _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8]), scales, offsets


def _q8_0(blocks: torch.Tensor) -> _Parts:
    (scales,) = _halves(blocks, 0)
    # Flipping the sign bit adds 128 to an int8 number.
    return blocks[:, 2:] ^ _INT8_ZERO, scales, -_INT8_ZERO * scales


def _nonlinear_codes(nibbles: torch.Tensor, values: Sequence[int] = _NONLINEAR) -> torch.Tensor:
    table = torch.tensor([value + _INT8_ZERO for value in values], dtype=torch.uint8)
    return table[nibbles.int()]


def _iq4_nl(blocks: torch.Tensor) -> _Parts:
    (scales,) = _halves(blocks, 0)
    return _nonlinear_codes(_nibbles(blocks[:, 2:])), scales, -_INT8_ZERO * scales


def _mxfp4(blocks: torch.Tensor) -> _Parts:
    scales = torch.exp2(blocks[:, :1].float() - _MXFP4_BIAS)
    return _nonlinear_codes(_nibbles(blocks[:, 1:]), _MXFP4_DOUBLES), scales, -_INT8_ZERO * scales


def _iq4_xs(blocks: torch.Tensor) -> _Parts:
    (unit,) = _halves(blocks, 0)
    high = blocks[:, 2:4].repeat_interleave(4, 1) >> torch.tensor([0, 2, 4, 6] * 2, dtype=torch.uint8) & 3
    low = torch.stack((blocks[:, 4:8] & _NIBBLE, blocks[:, 4:8] >> 4), 2).flatten(1)
    scales = unit * ((low | high << 4).float() - 32)
    return _nonlinear_codes(_chunked_nibbles(blocks[:, 8:], 16)), scales, -_INT8_ZERO * scales


def _two_bit_codes(packed: torch.Tensor) -> torch.Tensor:
    """Return the 2-bit codes of each 32 bytes: the lowest bits of all, then the next."""
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(4, 1)
    return (packed.view(packed.shape[0], -1, 1, 32) >> shifts & 3).flatten(1)


def _q2_k(blocks: torch.Tensor) -> _Parts:
    unit, min_unit = _halves(blocks, 80, 2)
    steps = blocks[:, :16]
    scales, minima = unit * (steps & _NIBBLE).float(), min_unit * (steps >> 4).float()
    return _two_bit_codes(blocks[:, 16:80]), scales, -minima


def _q3_k(blocks: torch.Tensor) -> _Parts:
    (unit,) = _halves(blocks, 108)
    packed = blocks[:, _SCALES_AT_3K]
    low = _nibbles(packed[:, :8])
    high = (packed[:, 8:].unsqueeze(1) >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(4, 1) & 3).flatten(1)
    scales = unit * ((low | high << 4).float() - 32)
    shifts = torch.arange(8, dtype=torch.uint8).view(8, 1)
    third_bits = ((blocks[:, :32].unsqueeze(1) >> shifts & 1) << 2).flatten(1)
    return _two_bit_codes(blocks[:, 32:96]) | third_bits, scales, -4 * scales


def _six_bit_steps(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scales and the minima of Q4_K and Q5_K in steps of their units, each [blocks, 8]."""
    first, second, third = torch.split(packed, 4, 1)
    scales = torch.cat((first & 63, third & _NIBBLE | (first >> 6) << 4), 1)
    minima = torch.cat((second & 63, third >> 4 | (second >> 6) << 4), 1)
    return scales.float(), minima.float()


def _q4_k(blocks: torch.Tensor) -> _Parts:
    unit, min_unit = _halves(blocks, 0, 2)
    scales, minima = _six_bit_steps(blocks[:, 4:16])
    return _chunked_nibbles(blocks[:, 16:], 32), unit * scales, -(min_unit * minima)


def _q5_k(blocks: torch.Tensor) -> _Parts:
    unit, min_unit = _halves(blocks, 0, 2)
    scales, minima = _six_bit_steps(blocks[:, 4:16])
    shifts = torch.arange(8, dtype=torch.uint8).view(8, 1)
    fifth_bits = ((blocks[:, 16:48].unsqueeze(1) >> shifts & 1) << 4).flatten(1)
    return _chunked_nibbles(blocks[:, 48:], 32) | fifth_bits, unit * scales, -(min_unit * minima)


def _q6_k(blocks: torch.Tensor) -> _Parts:
    (unit,) = _halves(blocks, 208)
    low = _chunked_nibbles(blocks[:, :128], 64)
    scales = unit * blocks[:, 192:208].contiguous().view(torch.int8).float()
    return low | _two_bit_codes(blocks[:, 128:192]) << 4, scales, -32 * scales


_UNPACKERS: Mapping[str, Callable[[torch.Tensor], _Parts]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
}
_PLAIN: Mapping[str, torch.dtype] = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
