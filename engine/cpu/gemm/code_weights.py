"""Weights as codes in the order in which integer tiles read them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from engine.cpu.gemm.code_rows import CODE_GROUP
from engine.cpu.gemm.code_tiles import CODE_KINDS, TOGETHER, CodeKind
from engine.cpu.gemm.tiles import LANES
from engine.models.raw_weights import RawWeight

_INT8_ZERO = 128
_LEAST_SCALE = 2.0**-100
_MOST_STEPS = 2.0**14
"""Largest minimum in units of the output's scale; float16 reaches four times as far."""


class CodeWeights(NamedTuple):
    """Packed weights of a projection; outputs are padded to whole vectors with zeros."""

    kind: int
    """Number of the kind among CODE_KINDS."""
    codes: torch.Tensor
    """uint8: words of four inputs [out / LANES, in / 4, LANES, 4]; with 4 bits two words share their bytes."""
    scales: torch.Tensor | None
    """float16 [out / LANES, groups, LANES]."""
    minima: torch.Tensor | None
    """float16 [out / LANES, groups, LANES]."""
    output_scales: torch.Tensor
    """float32 [out]."""


def is_packable(weight: RawWeight) -> bool:
    """Return whether integer tiles can multiply by the weight."""
    if weight.weight.dtype not in (torch.int8, torch.uint8) or weight.weight.shape[1] % CODE_GROUP:
        return False
    return weight.group_scales is None or weight.weight.shape[1] // weight.group_scales.shape[1] % CODE_GROUP == 0


def pack_codes(weight: RawWeight) -> CodeWeights:
    """Pack a weight for which `is_packable` is true."""
    if weight.group_scales is None:
        assert weight.scales is not None
        codes = (weight.weight.to(torch.int16) + _INT8_ZERO).to(torch.uint8)
        return CodeWeights(1, _packed_words(codes, 8), None, None, _padded(weight.scales.float()))
    assert weight.group_zeros is not None
    repeats = weight.weight.shape[1] // weight.group_scales.shape[1] // CODE_GROUP
    scales, zeros = (found.float().repeat_interleave(repeats, 1) for found in (weight.group_scales, weight.group_zeros))
    bits = 4 if weight.bits <= 4 else 8
    codes, middle = weight.weight, 1 << (bits - 1)
    if _can_move(zeros, weight.bits, bits):
        # Codes around another zero move to the middle, which makes minima superfluous.
        codes = codes + (middle - zeros[:, :1]).to(torch.uint8)
        zeros = torch.full_like(zeros, float(middle))
    has_minima = not bool((zeros == middle).all())
    kind = CodeKind(bits, has_scales=True, has_minima=has_minima)
    minima = -zeros * scales
    # A power of two loses nothing, and keeps scales and minima in float16's range.
    largest = torch.maximum(scales.abs().amax(1), minima.abs().amax(1) / _MOST_STEPS)
    output_scales = torch.exp2(torch.floor(torch.log2(largest.clamp_min(_LEAST_SCALE))))
    relative, least = (_packed_numbers(found / output_scales.unsqueeze(1)) for found in (scales, minima))
    number = next(number for number, known in CODE_KINDS.items() if known == kind)
    words = _packed_words(codes, bits)
    return CodeWeights(number, words, relative, least if has_minima else None, _padded(output_scales))


def unpack_codes(packed: CodeWeights, num_outputs: int) -> torch.Tensor:
    """Return the weights, float32 [out, in], by which integer tiles multiply."""
    kind = CODE_KINDS[packed.kind]
    words = packed.codes
    if kind.bits == 4:
        words = torch.stack((words & 15, words >> 4), 2).flatten(1, 2)
    codes = words.transpose(1, 2).flatten(2).flatten(0, 1).float() - kind.zero
    groups = codes.view(codes.shape[0], -1, CODE_GROUP)
    if packed.scales is not None:
        groups = groups * _unpacked_numbers(packed.scales)
    if packed.minima is not None:
        groups = groups + _unpacked_numbers(packed.minima)
    return groups.flatten(1).mul_(packed.output_scales.unsqueeze(1))[:num_outputs]


def _can_move(zeros: torch.Tensor, code_bits: int, bits: int) -> bool:
    """Return whether each output has one zero that may move to the middle of `bits` bits, with codes of `code_bits`."""
    first, middle = zeros[:, :1], 1 << (bits - 1)
    is_code = bool(((first == first.round()) & (first >= 0) & (first <= middle)).all())
    return is_code and bool((zeros == first).all()) and (1 << code_bits) - 1 + middle - int(first.min()) < 1 << bits


def _padded(numbers: torch.Tensor) -> torch.Tensor:
    """Return numbers [out, ...] padded with zeros to whole vectors of outputs."""
    missing = -numbers.shape[0] % LANES
    return functional.pad(numbers, (0, 0) * (numbers.dim() - 1) + (0, missing)).contiguous()


def _packed_words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return words of four codes for each lane."""
    padded = _padded(codes)
    words = padded.view(-1, LANES, padded.shape[1] // TOGETHER, TOGETHER).transpose(1, 2)
    if bits == 8:
        return words.contiguous()
    return words[:, ::2] | words[:, 1::2] << 4


def _packed_numbers(numbers: torch.Tensor) -> torch.Tensor:
    """Return float16 [out / LANES, groups, LANES]."""
    padded = _padded(numbers)
    return padded.view(-1, LANES, padded.shape[1]).transpose(1, 2).half().contiguous()


def _unpacked_numbers(numbers: torch.Tensor) -> torch.Tensor:
    """Return float32 [out, groups, 1]."""
    return numbers.float().transpose(1, 2).flatten(0, 1).unsqueeze(2)
