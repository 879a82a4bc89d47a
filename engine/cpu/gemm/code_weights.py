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
_MOST_CODE = 255
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
    """float32 [out], padded."""
    num_outputs: int

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        return self.num_outputs, self.codes.shape[1] * TOGETHER * 8 // CODE_KINDS[self.kind].bits

    @property
    def kind_name(self) -> str:
        """Short name of the products, for logs and metrics."""
        return CODE_KINDS[self.kind].name

    def rows(self, start: int, end: int) -> torch.Tensor:
        """Return the weights of outputs from `start`, a multiple of LANES, to `end` as float32 [end - start, in]."""
        kind, vectors = CODE_KINDS[self.kind], slice(start // LANES, -(-end // LANES))
        words = self.codes[vectors]
        if kind.bits == 4:
            words = torch.stack((words & 15, words >> 4), 2).flatten(1, 2)
        codes = words.transpose(1, 2).flatten(2).flatten(0, 1).float() - kind.zero
        groups = codes.view(codes.shape[0], -1, CODE_GROUP)
        if self.scales is not None:
            groups = groups * _unpacked_numbers(self.scales[vectors])
        if self.minima is not None:
            groups = groups + _unpacked_numbers(self.minima[vectors])
        found = groups.flatten(1)[: end - start]
        return found.mul_(self.output_scales[start:end].unsqueeze(1))


def is_packable(weight: RawWeight) -> bool:
    """Return whether integer tiles can multiply by the weight."""
    if weight.weight.dtype not in (torch.int8, torch.uint8) or weight.weight.shape[1] % CODE_GROUP:
        return False
    if weight.order is not None:
        return False
    return weight.group_scales is None or weight.weight.shape[1] // weight.group_scales.shape[1] % CODE_GROUP == 0


def can_regroup(weight: RawWeight) -> bool:
    """Return whether the weight is of codes in groups, and integer tiles can multiply by it once it is `regrouped`."""
    return weight.group_scales is not None and weight.weight.shape[1] % CODE_GROUP == 0


def regrouped(weight: RawWeight) -> RawWeight:
    """Return codes in other groups, or of reordered inputs, as 8-bit codes in groups of CODE_GROUP, rounded once more.

    The 255 steps of a group are so much finer than those of fewer bits that the rounding adds little to theirs.
    """
    dense = weight.dequantized().weight
    groups = dense.view(dense.shape[0], -1, CODE_GROUP)
    low, high = groups.amin(2), groups.amax(2)
    scales = ((high - low) / _MOST_CODE).clamp_min(_LEAST_SCALE)
    codes = groups.sub(low.unsqueeze(2)).div_(scales.unsqueeze(2)).round_().clamp_(0, _MOST_CODE)
    return RawWeight(codes.flatten(1).to(torch.uint8), None, weight.bias, scales, -low / scales, bits=8)


def pack_codes(weight: RawWeight) -> CodeWeights:
    """Pack a weight for which `is_packable` is true."""
    if weight.group_scales is None:
        assert weight.scales is not None
        codes = (weight.weight.to(torch.int16) + _INT8_ZERO).to(torch.uint8)
        scales = _padded(weight.scales.float())
        return CodeWeights(1, _packed_words(codes, 8), None, None, scales, codes.shape[0])
    assert weight.group_zeros is not None
    repeats = weight.weight.shape[1] // weight.group_scales.shape[1] // CODE_GROUP
    scales, zeros = (found.float().repeat_interleave(repeats, 1) for found in (weight.group_scales, weight.group_zeros))
    bits = 4 if weight.bits <= 4 else 8
    codes, middle = weight.weight, 1 << (bits - 1)
    if _can_move(codes, zeros, bits):
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
    return CodeWeights(number, words, relative, least if has_minima else None, _padded(output_scales), codes.shape[0])


def _can_move(codes: torch.Tensor, zeros: torch.Tensor, bits: int) -> bool:
    """Return whether each output has one zero that may move to the middle of `bits` bits, together with its codes."""
    first, middle = zeros[:, :1], 1 << (bits - 1)
    is_code = bool(((first == first.round()) & (first >= 0) & (first <= middle)).all())
    if not is_code or not bool((zeros == first).all()):
        return False
    return bool((codes.amax(1, keepdim=True) + middle - first < 1 << bits).all())


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
