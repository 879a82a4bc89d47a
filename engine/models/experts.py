"""Mixture of experts: a router picks a few experts for each token; a shared expert may process all tokens.

Tokens are grouped by expert, so that a step reads an expert's weights once for all tokens that chose it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch.nn import functional

from engine.models.activations import Activations
from engine.models.config.config import Activation
from engine.models.linear import Linear
from engine.models.mlp import Gate, gate_in_place


@dataclass(frozen=True, slots=True)
class Expert:
    """One expert: down(activation(gate) * up)."""

    gate_up: Linear
    down: Linear
    activation: Activation
    gate: Gate = gate_in_place

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs for inputs [T, hidden] in a new tensor [T, hidden]."""
        gate, up = self.gate_up.apply(inputs).chunk(2, dim=1)
        return self.down.apply(self.gate(gate, up, self.activation))


@dataclass(frozen=True, slots=True)
class ClampedGate:
    """Clamped SwiGLU: gate * sigmoid(gain * gate) * (up + 1), with gate and up limited before."""

    limit: float
    """Largest gate, and largest magnitude of up."""
    gain: float

    def __call__(self, gate: torch.Tensor, up: torch.Tensor, activation: Activation) -> torch.Tensor:
        """Compute the result in the gate's memory and return it; both are [T, size], and `up` is overwritten."""
        gate.clamp_(max=self.limit)
        up.clamp_(-self.limit, self.limit).add_(1.0)
        return gate.mul_((gate * self.gain).sigmoid_()).mul_(up)


@dataclass(frozen=True, slots=True)
class ExpertRouter:
    """Router that picks experts for each token and weighs them."""

    weight: torch.Tensor
    """[experts, hidden]; never quantized, because a small error here selects another expert."""
    num_chosen: int
    is_normalized: bool
    """True if the chosen experts' weights are scaled to sum to 1."""
    bias: torch.Tensor | None = None
    """[experts]."""

    def choose(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weights in the inputs' dtype and expert indices, both [T, num_chosen]."""
        shares = functional.linear(inputs, self.weight, self.bias).softmax(-1, dtype=torch.float32)
        top, chosen = shares.topk(self.num_chosen, dim=-1)
        if self.is_normalized:
            top /= top.sum(-1, keepdim=True)
        return top.to(inputs.dtype), chosen


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """Expert that every token uses, scaled by a gate of its own."""

    expert: Expert
    gate: torch.Tensor
    """[1, hidden]: weights of the gate."""

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs for inputs [T, hidden] in a new tensor [T, hidden]."""
        return self.expert.apply(inputs).mul_(functional.linear(inputs, self.gate).sigmoid_())


@dataclass(frozen=True, slots=True)
class SparseMLP:
    """MLP branch of a layer with experts."""

    router: ExpertRouter
    experts: list[Expert]
    shared: SharedExpert | None

    def into(self, out: torch.Tensor, inputs: torch.Tensor, activations: Activations) -> None:
        """Write the branch's output to `out`."""
        out.copy_(self._mixed(inputs))

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor, activations: Activations) -> None:
        """Add the branch's output to `total`."""
        total.add_(self._mixed(inputs))

    def _mixed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the mixed outputs as a new [T, hidden]."""
        mixed = torch.zeros_like(inputs) if self.shared is None else self.shared.apply(inputs)
        shares, chosen = self.router.choose(inputs)
        picks = chosen.flatten()
        by_expert = picks.argsort(stable=True)
        # Group sizes are needed on the host to cut the groups: on a GPU this waits for the router once a layer.
        ends = picks.bincount(minlength=len(self.experts)).cumsum(0).tolist()
        for expert, (start, end) in zip(self.experts, itertools.pairwise([0, *ends]), strict=True):
            if start == end:
                continue
            group = by_expert[start:end]
            tokens = group // self.router.num_chosen
            outputs = expert.apply(inputs.index_select(0, tokens))
            mixed.index_add_(0, tokens, outputs.mul_(shares.flatten().index_select(0, group).unsqueeze(1)))
        return mixed
