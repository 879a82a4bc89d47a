"""Layer operations on CUDA; for tests also on a CPU through Triton's interpreter."""

from __future__ import annotations

import torch

from engine.attention.gated_delta import DeltaInputs
from engine.attention.step_states import StepStates
from engine.kernels.gated_delta_rule import advance_states
from engine.models.config.config import Activation
from engine.models.fused_decoder_layer import FusedDecoderLayer
from engine.models.fused_layers import FusedRMSNorm, gate_fused
from engine.models.layers import RMSNorm


class TritonLayerOps:
    """Layer operations from fused Triton kernels."""

    layer = FusedDecoderLayer

    def gate(self, gate_half: torch.Tensor, up_half: torch.Tensor, activation: Activation) -> torch.Tensor:
        """Compute activation(gate) * up in `gate_half` and return it."""
        return gate_fused(gate_half, up_half, activation)

    def norm(self, weight: torch.Tensor, eps: float, offset: float) -> RMSNorm:
        """Return a norm over the last axis."""
        return FusedRMSNorm(weight, eps, offset)

    def advance(self, states: torch.Tensor, step: StepStates, inputs: DeltaInputs) -> torch.Tensor:
        """Advance the recurrent states of a step's sequences in place; outputs [T, heads, value_dim]."""
        return advance_states(states, step.reads, step.starts, step.cut_ends, step.cut_slots, inputs)
