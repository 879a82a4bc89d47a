"""Weights of projections before their layout changes, and the interface of what packs them for kernels of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from engine.models.linear import Linear

_PIECE_NUMBERS = 1 << 22
"""Numbers that are compared at a time, so that no check copies a whole weight."""


@dataclass(frozen=True, slots=True)
class RawWeight:
    """Weights of one projection before their layout changes."""

    weight: torch.Tensor
    """float32, bfloat16, float16 or int8 [out, in]; or unsigned codes of groups of inputs, uint8 [out, in].

    It may be mapped from a file, and is only read.
    """
    scales: torch.Tensor | None
    """float32 [out]: scale of each output of an int8 weight."""
    bias: torch.Tensor | None
    """float32 [out]."""
    group_scales: torch.Tensor | None = None
    """float32 [out, groups]: scales of unsigned codes, weight = (code - zero) * scale."""
    group_zeros: torch.Tensor | None = None
    """float32 [out, groups]: zeros in units of codes."""
    bits: int = 8
    """Number of bits of an unsigned code."""
    order: torch.Tensor | None = None
    """int64 [in]: column i of the codes is for input order[i]; None: columns are in input order."""

    def fits_bfloat16(self) -> bool:
        """Return whether bfloat16 represents the weights exactly, as in checkpoints that were saved in it."""
        if self.weight.dtype == torch.bfloat16:
            return True
        if not self.weight.is_floating_point():
            return False
        num_rows = max(1, _PIECE_NUMBERS // max(1, self.weight.shape[1]))
        return all(torch.equal(piece.bfloat16().to(piece.dtype), piece) for piece in torch.split(self.weight, num_rows))

    def dequantized(self) -> RawWeight:
        """Return the weights of unsigned codes as float32; others unchanged."""
        if self.group_scales is None or self.group_zeros is None:
            return self
        num_outputs, num_groups = self.group_scales.shape
        groups = self.weight.view(num_outputs, num_groups, -1).float()
        groups.sub_(self.group_zeros.unsqueeze(2)).mul_(self.group_scales.unsqueeze(2))
        weight = groups.flatten(1)
        if self.order is not None:
            weight = torch.empty_like(weight).index_copy_(1, self.order, weight)
        return RawWeight(weight, None, self.bias)


class WeightPacker(Protocol):
    """Packer that takes each projection's weights as the loader reads them, so that no second copy of them remains."""

    def linear(self, raw: RawWeight) -> Linear:
        """Return the projection by packed weights."""
        ...
