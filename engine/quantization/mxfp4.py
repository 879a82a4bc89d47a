"""Kernel for MXFP4 weights (OCP Microscaling Formats 1.0) on any device."""

from __future__ import annotations

import torch
from torch.nn import functional

from engine.quantization.kernels import KernelKind, UnpackBuffer
from engine.quantization.weights import MXFP4_GROUP, Mxfp4Weight, mxfp4_pairs, mxfp4_scales

_PIECE_BYTES = 1 << 18
"""Bytes of codes that are unpacked at once, so that intermediate results stay in the processor's cache."""


class UnpackedMxfp4:
    """Product with MXFP4 weights converted to bfloat16, which is exact, for each call."""

    def __init__(self, weight: Mxfp4Weight, scratch: UnpackBuffer) -> None:
        self._weight = weight
        self._scratch = scratch
        self._pairs = mxfp4_pairs(torch.bfloat16, weight.codes.device).view(torch.int32).flatten()

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Multiply inputs [T, in]: bfloat16 [T, out]."""
        weight = self._weight
        unpacked = self._scratch.take(weight.shape, weight.codes.device)
        words = unpacked.view(torch.int32)
        num_rows = max(1, _PIECE_BYTES // weight.codes.shape[1])
        for start in range(0, weight.shape[0], num_rows):
            rows = slice(start, start + num_rows)
            codes, exponents = weight.codes[rows], weight.exponents[rows]
            words[rows] = self._pairs.index_select(0, codes.flatten().int()).view(codes.shape)
            scales = mxfp4_scales(exponents).bfloat16()
            unpacked[rows].view(*exponents.shape, MXFP4_GROUP).mul_(scales.unsqueeze(2))
        return functional.linear(inputs.bfloat16(), unpacked), None


def _always(weight: Mxfp4Weight) -> bool:
    return True


MXFP4: tuple[KernelKind[Mxfp4Weight], ...] = (KernelKind("unpacked_mxfp4", _always, UnpackedMxfp4),)
