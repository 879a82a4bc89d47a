"""Loader of a layer's experts: a tensor for each expert's projection, or one tensor for those of all experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.config.config import ExpertTraits, ModelConfig
from engine.models.experts import ClampedGate, Expert, ExpertRouter, SharedExpert, SparseMLP
from engine.models.linear import Linear
from engine.models.loading.fused_experts import FusedExperts
from engine.models.mlp import Gate


class ProjectionSource(Protocol):
    """Reader of projections and other weights from a checkpoint in the model's dtype."""

    def linear(self, prefixes: list[str], out_size: int, in_size: int, *, has_bias: bool) -> Linear:
        """Return one projection, or several of the same input stacked into one."""
        ...

    def split(self, prefix: str, out_size: int, in_size: int, rows: Sequence[torch.Tensor]) -> list[Linear]:
        """Return several projections without bias, of which one tensor holds all; `rows` are the outputs of each."""
        ...

    def copy(self, name: str, *shape: int) -> torch.Tensor:
        """Return a tensor of this shape."""
        ...


class ExpertLoader:
    """Loader of the MLP branches with experts of one model."""

    def __init__(
        self, config: ModelConfig, checkpoint: Checkpoint, source: ProjectionSource, fused: FusedExperts, gate: Gate
    ) -> None:
        """Create the loader.

        Args:
            config: Shape of the model.
            checkpoint: Tensors of the model.
            source: Reader of projections.
            fused: Reader of tensors with the projections of all experts.
            gate: Gate of experts without a clamped SwiGLU.
        """
        self._config = config
        self._checkpoint = checkpoint
        self._source = source
        self._fused = fused
        self._gate = gate

    def load(self, prefix: str, traits: ExpertTraits) -> SparseMLP:
        """Return the branch under a prefix.

        Raises:
            CheckpointError: Tensors are missing, surplus or misshapen.
        """
        hidden_size = self._config.hidden_size
        router = ExpertRouter(
            self._source.copy(f"{prefix}.{traits.router}.weight", traits.num_experts, hidden_size),
            traits.num_chosen,
            traits.is_normalized,
            self._source.copy(f"{prefix}.{traits.router}.bias", traits.num_experts) if traits.has_bias else None,
        )
        shared = None
        if traits.shared_size is not None:
            shared = SharedExpert(
                self._expert(f"{prefix}.shared_expert", traits, traits.shared_size),
                self._source.copy(f"{prefix}.shared_expert_gate.weight", 1, hidden_size),
            )
        return SparseMLP(router, self._experts(f"{prefix}.experts", traits), shared)

    def _experts(self, prefix: str, traits: ExpertTraits) -> list[Expert]:
        if traits.are_fused and not self._checkpoint.has(f"{prefix}.0.{traits.projections[0]}.weight"):
            pairs = self._fused.projections(prefix, traits, self._config.hidden_size)
            return [self._made(traits, gate_up, down) for gate_up, down in pairs]
        if self._checkpoint.has(f"{prefix}.gate_up_proj"):
            stacked = self._fused.stacked_projections(prefix, traits, self._config.hidden_size)
            return [self._made(traits, gate_up, down) for gate_up, down in stacked]
        if fused := self._checkpoint.first_with(f"{prefix}.gate_up_proj"):
            problem = "a quantized tensor for all experts is not read; expected tensors for each expert"
            raise CheckpointError(f"{fused}: {problem}")
        return [self._expert(f"{prefix}.{index}", traits, traits.size) for index in range(traits.num_experts)]

    def _expert(self, prefix: str, traits: ExpertTraits, size: int) -> Expert:
        gate, up, down = (f"{prefix}.{name}" for name in traits.projections)
        hidden_size = self._config.hidden_size
        return self._made(
            traits,
            self._source.linear([gate, up], size, hidden_size, has_bias=traits.has_bias),
            self._source.linear([down], hidden_size, size, has_bias=traits.has_bias),
        )

    def _made(self, traits: ExpertTraits, gate_up: Linear, down: Linear) -> Expert:
        gate = self._gate if traits.gate_limit is None else ClampedGate(traits.gate_limit, traits.gate_gain)
        return Expert(gate_up, down, self._config.traits.activation, gate)
