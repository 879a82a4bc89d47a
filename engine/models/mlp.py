"""MLP branch of a decoder layer: dense gated projections, and the interface that experts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from engine.models.activations import Activations
from engine.models.config.config import Activation
from engine.models.linear import Linear

Gate = Callable[[torch.Tensor, torch.Tensor, Activation], torch.Tensor]
"""Function that computes activation(gate) * up in the gate's memory and returns it; both are [T, size]."""


class MLP(Protocol):
    """MLP branch interface; `inputs` [T, hidden] may be the target too."""

    def into(self, out: torch.Tensor, inputs: torch.Tensor, activations: Activations) -> None:
        """Write the branch's output to `out` [T, hidden]."""
        ...

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor, activations: Activations) -> None:
        """Add the branch's output to `total` [T, hidden]."""
        ...


def gate_in_place(gate: torch.Tensor, up: torch.Tensor, activation: Activation) -> torch.Tensor:
    """Compute activation(gate) * up in the gate's memory and return it."""
    return activate(gate, activation).mul_(up)


@dataclass(frozen=True, slots=True)
class DenseMLP:
    """Dense MLP in the step's buffers: down(activation(gate) * up)."""

    gate_up: Linear
    down: Linear
    activation: Activation
    gate: Gate = gate_in_place

    def into(self, out: torch.Tensor, inputs: torch.Tensor, activations: Activations) -> None:
        """Write the branch's output to `out`."""
        self._gated(inputs, activations)
        self.down.into(activations.gate, out)

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor, activations: Activations) -> None:
        """Add the branch's output to `total`."""
        self._gated(inputs, activations)
        self.down.add_to(total, activations.gate)

    def _gated(self, inputs: torch.Tensor, activations: Activations) -> None:
        """Compute activation(gate) * up in the gate's buffer."""
        self.gate_up.into(inputs, activations.gate_up)
        self.gate(activations.gate, activations.up, self.activation)


def activate(gate: torch.Tensor, activation: Activation) -> torch.Tensor:
    """Apply the activation in place and return the tensor."""
    if activation == "silu":
        return functional.silu(gate, inplace=True)
    return gate.copy_(functional.gelu(gate, approximate="tanh"))
