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
    """float32, bfloat16, float16 or int8 [out, in]; it may be mapped from a file, and is only read."""
    scales: torch.Tensor | None
    """float32 [out]: scale of each output of an int8 weight."""
    bias: torch.Tensor | None
    """float32 [out]."""
    rounds_inputs: bool = False
    """True if each input row is rounded to int8 as well."""

    def fits_bfloat16(self) -> bool:
        """Return whether bfloat16 represents the weights exactly, as in checkpoints that were saved in it."""
        if self.weight.dtype == torch.bfloat16:
            return True
        if not self.weight.is_floating_point():
            return False
        num_rows = max(1, _PIECE_NUMBERS // max(1, self.weight.shape[1]))
        return all(torch.equal(piece.bfloat16().to(piece.dtype), piece) for piece in torch.split(self.weight, num_rows))


class WeightPacker(Protocol):
    """Packer that takes each projection's weights as the loader reads them, so that no second copy of them remains."""

    def linear(self, raw: RawWeight) -> Linear:
        """Return the projection by packed weights."""
        ...
