"""How the parts of a layer between its matrix products are computed: as torch operations, or as fused kernels."""

from __future__ import annotations

from typing import Protocol

import torch

from engine.models.config.config import Activation
from engine.models.decoder import DecoderLayer
from engine.models.layers import RMSNorm
from engine.models.mlp import gate_in_place


class LayerOps(Protocol):
    """What the loader builds layers from."""

    @property
    def layer(self) -> type[DecoderLayer]:
        """What a layer is made as."""
        ...

    def gate(self, gate_half: torch.Tensor, up_half: torch.Tensor, activation: Activation) -> torch.Tensor:
        """activation(gate) * up, left in `gate_half` and returned; both [T, size] and halves of one buffer."""
        ...

    def norm(self, weight: torch.Tensor, eps: float, offset: float) -> RMSNorm:
        """A norm over the last axis."""
        ...


class TorchLayerOps:
    """Plain torch, on any device."""

    layer = DecoderLayer

    def gate(self, gate_half: torch.Tensor, up_half: torch.Tensor, activation: Activation) -> torch.Tensor:
        """activation(gate) * up, left in `gate_half` and returned."""
        return gate_in_place(gate_half, up_half, activation)

    def norm(self, weight: torch.Tensor, eps: float, offset: float) -> RMSNorm:
        """A norm over the last axis."""
        return RMSNorm(weight, eps, offset)


def layer_ops(device: torch.device) -> LayerOps:
    """The fused kernels where they compile, else torch."""
    if device.type != "cuda":
        return TorchLayerOps()
    # Triton is installed with GPU builds only.
    from engine.models.fused_ops import TritonLayerOps

    return TritonLayerOps()
