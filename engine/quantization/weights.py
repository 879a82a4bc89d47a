"""Quantized weights as tensors: conversion of numbers to codes and scales, and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch

INT8_MAX = 127
INT4_MAX = 15
_TINY = 1e-12
_SHRINK_STEPS = 5
_SHRINK_STEP = 0.06
_PIECE_NUMBERS = 1 << 15
_DEVICE_PIECE_NUMBERS = 1 << 24
MXFP4_GROUP = 32
_MXFP4_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_EXPONENT_BIAS = 127


@dataclass(frozen=True, slots=True)
class PlainWeight:
    """Unquantized weight."""

    codes: torch.Tensor
    """float32 [out, in]."""

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (out, in)."""
        return self.codes.shape[0], self.codes.shape[1]

    def dequantize(self) -> torch.Tensor:
        """Return the weight as float32 [out, in]."""
        return self.codes.float()

    def rows(self, indices: torch.Tensor) -> PlainWeight:
        """Return the outputs with these indices, in their order."""
        return PlainWeight(self.codes.index_select(0, indices))

    def to(self, device: torch.device) -> PlainWeight:
        """Return the weight on a device."""
        return PlainWeight(self.codes.to(device))


@dataclass(frozen=True, slots=True)
class ChannelWeight:
    """Int8 or fp8 codes with one scale for each output: weight = codes * scales."""

    codes: torch.Tensor
    """int8 or float8_e4m3fn [out, in]."""
    scales: torch.Tensor
    """float32 [out]."""

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (out, in)."""
        return self.codes.shape[0], self.codes.shape[1]

    @property
    def num_bytes(self) -> int:
        """Number of bytes of the tensors."""
        return self.codes.nbytes + self.scales.nbytes

    def dequantize(self) -> torch.Tensor:
        """Return the weight as float32 [out, in]."""
        return self.codes.float().mul_(self.scales.unsqueeze(1))

    def rows(self, indices: torch.Tensor) -> ChannelWeight:
        """Return the outputs with these indices, in their order."""
        # Bytes, because not every operation knows fp8.
        codes = self.codes.view(torch.uint8).index_select(0, indices).view(self.codes.dtype)
        return ChannelWeight(codes, self.scales.index_select(0, indices))

    def to(self, device: torch.device) -> ChannelWeight:
        """Return the weight on a device."""
        return ChannelWeight(self.codes.to(device), self.scales.to(device))


@dataclass(frozen=True, slots=True)
class GroupWeight:
    """Weight in input groups of equal size: weight = (codes - zeros) * scales, group by group."""

    codes: torch.Tensor
    """uint8 [out, in], 0 .. 2**bits - 1."""
    scales: torch.Tensor
    """float32 [out, groups]."""
    zeros: torch.Tensor
    """float32 [out, groups], in units of codes."""
    bits: int
    order: torch.Tensor | None = None
    """int64 [in]: column i holds the weight of input order[i]; None: columns are in input order."""

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (out, in)."""
        return self.codes.shape[0], self.codes.shape[1]

    @property
    def group_size(self) -> int:
        """Number of inputs that share a scale."""
        return self.codes.shape[1] // self.scales.shape[1]

    def dequantize(self) -> torch.Tensor:
        """Return the weight as float32 [out, in], with columns in input order."""
        num_out, num_in = self.shape
        groups = self.codes.view(num_out, -1, self.group_size).float()
        weight = groups.sub_(self.zeros.unsqueeze(2)).mul_(self.scales.unsqueeze(2)).view(num_out, num_in)
        if self.order is None:
            return weight
        return torch.empty_like(weight).index_copy_(1, self.order, weight)

    def rows(self, indices: torch.Tensor) -> GroupWeight:
        """Return the outputs with these indices, in their order."""
        codes, scales, zeros = (t.index_select(0, indices) for t in (self.codes, self.scales, self.zeros))
        return GroupWeight(codes, scales, zeros, self.bits, self.order)

    def to(self, device: torch.device) -> GroupWeight:
        """Return the weight on a device."""
        order = None if self.order is None else self.order.to(device)
        codes, scales, zeros = (tensor.to(device) for tensor in (self.codes, self.scales, self.zeros))
        return GroupWeight(codes, scales, zeros, self.bits, order)


@dataclass(frozen=True, slots=True)
class Mxfp4Weight:
    """Weight in groups of 32 inputs (OCP Microscaling Formats 1.0): weight = e2m1 number * 2 ** (exponent - 127)."""

    codes: torch.Tensor
    """uint8 [out, in / 2]: two codes a byte, the first in the lower half; a code is a sign bit and a magnitude."""
    exponents: torch.Tensor
    """uint8 [out, in / 32]."""

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (out, in)."""
        return self.codes.shape[0], 2 * self.codes.shape[1]

    def dequantize(self) -> torch.Tensor:
        """Return the weight as float32 [out, in]."""
        pairs = mxfp4_pairs(torch.float32, self.codes.device)
        numbers = pairs.index_select(0, self.codes.flatten().int()).view(*self.exponents.shape, MXFP4_GROUP)
        return numbers.mul_(mxfp4_scales(self.exponents).unsqueeze(2)).view(self.shape)

    def in_groups(self) -> GroupWeight:
        """Return the same numbers as 8-bit codes: their doubles are whole."""
        highest = 2 * _MXFP4_MAGNITUDES[-1]
        doubles = mxfp4_pairs(torch.float32, self.codes.device).mul_(2).add_(highest).to(torch.uint8)
        codes = doubles.index_select(0, self.codes.flatten().int()).view(self.shape)
        scales = mxfp4_scales(self.exponents).div_(2)
        return GroupWeight(codes, scales, torch.full_like(scales, highest), bits=8)

    def rows(self, indices: torch.Tensor) -> Mxfp4Weight:
        """Return the outputs with these indices, in their order."""
        return Mxfp4Weight(self.codes.index_select(0, indices), self.exponents.index_select(0, indices))

    def to(self, device: torch.device) -> Mxfp4Weight:
        """Return the weight on a device."""
        return Mxfp4Weight(self.codes.to(device), self.exponents.to(device))


PublishedWeight = PlainWeight | ChannelWeight | GroupWeight | Mxfp4Weight
"""Weight of a projection as a quantized checkpoint stores it."""


def mxfp4_pairs(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return the two MXFP4 numbers of each byte, [256, 2]."""
    numbers = torch.tensor([*_MXFP4_MAGNITUDES, *(-number for number in _MXFP4_MAGNITUDES)], dtype=dtype, device=device)
    codes = torch.arange(256, device=device)
    return torch.stack((numbers[codes & 15], numbers[codes >> 4]), 1)


def mxfp4_scales(exponents: torch.Tensor) -> torch.Tensor:
    """Return the powers of two, float32, of exponents uint8."""
    return torch.exp2(exponents.float() - _EXPONENT_BIAS)


def quantize_channels(weight: torch.Tensor) -> ChannelWeight:
    """Quantize a weight [out, in] to symmetric int8; the rounding error is at most half its output's scale."""
    rows = max(1, _PIECE_NUMBERS // weight.shape[1])
    codes = torch.empty(weight.shape, dtype=torch.int8, device=weight.device)
    scales = torch.empty(weight.shape[0], device=weight.device)
    # Piece by piece, so that a large vocabulary's weight is never there in float32.
    for start in range(0, weight.shape[0], rows):
        piece = weight[start : start + rows].float()
        of_piece = piece.abs().amax(1).div_(INT8_MAX).clamp_(min=_TINY)
        codes[start : start + rows] = piece.div(of_piece.unsqueeze(1)).round_().clamp_(-INT8_MAX, INT8_MAX)
        scales[start : start + rows] = of_piece
    return ChannelWeight(codes, scales)


def quantize_groups(
    weight: torch.Tensor,
    group_size: int,
    importance: torch.Tensor | None = None,
    *,
    has_whole_zeros: bool = False,
) -> GroupWeight:
    """Quantize a weight [out, in] to int4 groups, each with the scale and minimum of the least squared error found.

    Args:
        weight: Weight, of any floating dtype.
        group_size: Number of inputs that share a scale.
        importance: float32 [in]: factor of each input's squared errors; None: all count alike.
        has_whole_zeros: True for kernels that subtract zeros from codes in 16 bits, which is exact for integers alone.

    Raises:
        ValueError: The group size does not divide the inputs.
    """
    num_in = weight.shape[1]
    if num_in % group_size:
        raise ValueError(f"groups of {group_size} do not divide {num_in} inputs")
    # Small pieces stay in a processor's cache during the many passes over them; a card wants few launches.
    rows = max(1, (_PIECE_NUMBERS if weight.device.type == "cpu" else _DEVICE_PIECE_NUMBERS) // num_in)
    pieces = []
    for piece in torch.split(weight, rows):
        groups = piece.float().reshape(piece.shape[0], -1, group_size)
        of_groups = torch.ones_like(groups[:1]) if importance is None else importance.view(1, -1, group_size)
        scales, minima = fit_groups(groups, of_groups)
        if has_whole_zeros:
            minima = (minima / scales).round_() * scales
        pieces.append((int4_codes(groups, scales, minima).flatten(1).to(torch.uint8), scales, minima))
    codes, scales, minima = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    zeros = -minima / scales
    return GroupWeight(codes, scales, zeros.round_() if has_whole_zeros else zeros, bits=4)


def fit_groups(groups: torch.Tensor, importance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scales and minima [...] of int4 codes for groups [..., size]: the best of several ranges.

    Each range gives codes, and the codes the scale and minimum of the least weighted squared error.
    """
    low, high = groups.amin(-1), groups.amax(-1)
    weights, weighted = importance.sum(-1), importance * groups
    best: tuple[torch.Tensor, ...] = ()
    for step in range(_SHRINK_STEPS):
        factor = 1 - step * _SHRINK_STEP
        scales = ((high - low) * (factor / INT4_MAX)).clamp_(min=_TINY)
        minima = low + (high - low) * ((1 - factor) / 2)
        codes = int4_codes(groups, scales, minima)
        of_codes = importance * codes
        first, second = of_codes.sum(-1), (of_codes * codes).sum(-1)
        product, total = (weighted * codes).sum(-1), weighted.sum(-1)
        spread = weights * second - first * first
        is_spread = spread > _TINY * weights * second
        fitted = (weights * product - first * total) / torch.where(is_spread, spread, 1.0)
        is_fitted = is_spread & (fitted > _TINY)
        scales = torch.where(is_fitted, fitted, scales)
        minima = torch.where(is_fitted, (total - fitted * first) / weights, minima)
        errors = codes.mul_(scales.unsqueeze(-1)).add_(minima.unsqueeze(-1)).sub_(groups).square_().mul_(importance)
        found: tuple[torch.Tensor, ...] = (errors.sum(-1), scales, minima)
        if best:
            is_better = found[0] < best[0]
            found = tuple(torch.where(is_better, *pair) for pair in zip(found, best, strict=True))
        best = found
    return best[1], best[2]


def int4_codes(groups: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor) -> torch.Tensor:
    """Return the nearest codes, 0 .. 15 in float32, of groups [..., size]."""
    return groups.sub(minima.unsqueeze(-1)).div_(scales.unsqueeze(-1)).round_().clamp_(0, INT4_MAX)
