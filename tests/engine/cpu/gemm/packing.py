"""Packed weights for tests of products by address."""

from __future__ import annotations

import torch

from engine.cpu.gemm.packed_weight import num_vectors, pack_into
from engine.cpu.gemm.tiles import LANES


def packed(weight: torch.Tensor) -> torch.Tensor:
    """Weights [out, in] as vectors of outputs, in bfloat16 with two inputs side by side."""
    together = 2 if weight.dtype == torch.bfloat16 else 1
    found = weight.new_zeros(num_vectors(weight.shape[0]), weight.shape[1] // together, LANES, together)
    pack_into(found, weight)
    return found
