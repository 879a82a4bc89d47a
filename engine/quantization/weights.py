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


@dataclass(frozen=True, slots=True)
class PlainWeight:
    """Unquantized weight."""

    codes: torch.Tensor
    """float32 [out, in]."""

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (out, in)."""
        return self.codes.shape[0], self.codes.shape[1]


@dataclass(frozen=True, slots=True)
class ChannelWeight:
    """Int8 codes with one scale for each output: weight = codes * scales."""

    codes: torch.Tensor
    """int8 [out, in], -127 .. 127."""
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


def quantize_channels(weight: torch.Tensor) -> ChannelWeight:
    """Quantize a weight [out, in] to symmetric int8; the rounding error is at most half its output's scale."""
    weight = weight.float()
    scales = weight.abs().amax(1).div_(INT8_MAX).clamp_(min=_TINY)
    codes = weight.div(scales.unsqueeze(1)).round_().clamp_(-INT8_MAX, INT8_MAX).to(torch.int8)
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
    rows = max(1, _PIECE_NUMBERS // num_in)
    # Small pieces stay in the processor's cache during the many passes over them.
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
