"""The parts of a layer on CUDA, and on CPU through Triton's interpreter for tests."""

from __future__ import annotations

import torch

from engine.models.config.config import Activation
from engine.models.fused_decoder_layer import FusedDecoderLayer
from engine.models.fused_layers import FusedRMSNorm, gate_fused
from engine.models.layers import RMSNorm


class TritonLayerOps:
    """Layers from fused kernels."""

    layer = FusedDecoderLayer

    def gate(self, gate_half: torch.Tensor, up_half: torch.Tensor, activation: Activation) -> torch.Tensor:
        """activation(gate) * up, left in `gate_half` and returned."""
        return gate_fused(gate_half, up_half, activation)

    def norm(self, weight: torch.Tensor, eps: float, offset: float) -> RMSNorm:
        """A norm over the last axis."""
        return FusedRMSNorm(weight, eps, offset)
