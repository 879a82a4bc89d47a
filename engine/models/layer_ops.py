"""Layer operations between the matrix products: plain torch, or fused kernels."""

from __future__ import annotations

from typing import Protocol

import torch

from engine.attention.gated_delta import DeltaInputs, advance
from engine.attention.step_states import StepStates
from engine.models.config.config import Activation
from engine.models.decoder import DecoderLayer
from engine.models.layers import RMSNorm
from engine.models.mlp import gate_in_place


class LayerOps(Protocol):
    """Factory of a layer's parts for the loader."""

    @property
    def layer(self) -> type[DecoderLayer]:
        """Class of a decoder layer."""
        ...

    def gate(self, gate_half: torch.Tensor, up_half: torch.Tensor, activation: Activation) -> torch.Tensor:
        """Compute activation(gate) * up in `gate_half` and return it; both are [T, size] halves of one buffer."""
        ...

    def norm(self, weight: torch.Tensor, eps: float, offset: float) -> RMSNorm:
        """Return a norm over the last axis."""
        ...

    def advance(self, states: torch.Tensor, step: StepStates, inputs: DeltaInputs) -> torch.Tensor:
        """Advance the recurrent states of a step's sequences in place; outputs [T, heads, value_dim]."""
        ...


class TorchLayerOps:
    """Layer operations from plain torch, on any device."""

    layer = DecoderLayer

    def gate(self, gate_half: torch.Tensor, up_half: torch.Tensor, activation: Activation) -> torch.Tensor:
        """Compute activation(gate) * up in `gate_half` and return it."""
        return gate_in_place(gate_half, up_half, activation)

    def norm(self, weight: torch.Tensor, eps: float, offset: float) -> RMSNorm:
        """Return a norm over the last axis."""
        return RMSNorm(weight, eps, offset)

    def advance(self, states: torch.Tensor, step: StepStates, inputs: DeltaInputs) -> torch.Tensor:
        """Advance the recurrent states of a step's sequences in place; outputs [T, heads, value_dim]."""
        return advance(states, step, inputs)


def layer_ops(device: torch.device) -> LayerOps:
    """Return the fused kernels on CUDA, otherwise plain torch."""
    if device.type != "cuda":
        return TorchLayerOps()
    # Only GPU builds install Triton.
    from engine.models.fused_ops import TritonLayerOps

    return TritonLayerOps()
