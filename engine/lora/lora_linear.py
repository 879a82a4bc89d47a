"""Projections whose rows gain the products of their adapters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from engine.lora.projections import ProjectionName
from engine.lora.stacked_weights import AddTokenProducts, ProjectionWeights, StackedWeights
from engine.lora.step_rows import AdapterGroup
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.linear import Linear
from engine.models.mlp import DenseMLP


class TokenAdapters(NamedTuple):
    """Adapters of a step's tokens, and what adds their products."""

    indices: torch.Tensor
    """int32 [T]: index of each token's adapter in the stacked weights; -1: none."""
    add: AddTokenProducts


@dataclass(slots=True)
class StepAdapters:
    """Adapters of the step under way, shared by all projections of a model: by groups of rows, or token by token."""

    groups: list[AdapterGroup] = field(default_factory=list)
    """No group: every row is the base model's."""
    by_token: TokenAdapters | None = None
    """Adapters token by token, in place of groups; None: by groups."""


class LoraLinear:
    """Projection y = W x + B (A x) with another A and B for each group of rows; other rows stay as they are."""

    def __init__(self, base: Linear, weights: ProjectionWeights, step: StepAdapters) -> None:
        self._base = base
        self._weights = weights
        self._step = step

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the projection to a new [T, out]."""
        out = self._base.apply(inputs)
        self._add_products(inputs, out)
        return out

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write the projection to `out`."""
        self._base.into(inputs, out)
        self._add_products(inputs, out)

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """Add the projection to `total`."""
        self._base.add_to(total, inputs)
        self._add_products(inputs, total)

    def _add_products(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        if self._step.by_token is not None:
            indices, add = self._step.by_token
            self._weights.add_by_token(out, inputs, indices, add)
            return
        for group in self._step.groups:
            product = self._weights.product(group.adapter)
            if product is not None:
                product.add_to(out, inputs, group)


def attach_adapters(decoder: Decoder, weights: StackedWeights, step: StepAdapters) -> None:
    """Let the decoder's projections add the products of the step's adapters."""
    decoder.layers = [
        _adapted_layer(layer, of_layer, step) if isinstance(layer, DecoderLayer) else layer
        for layer, of_layer in zip(decoder.layers, weights.layers, strict=True)
    ]


def _adapted_layer(
    layer: DecoderLayer, weights: dict[ProjectionName, ProjectionWeights], step: StepAdapters
) -> DecoderLayer:
    mlp = layer.mlp
    if isinstance(mlp, DenseMLP):
        gate_up, down = (
            LoraLinear(mlp.gate_up, weights["gate_up"], step),
            LoraLinear(mlp.down, weights["down"], step),
        )
        mlp = replace(mlp, gate_up=gate_up, down=down)
    return replace(
        layer,
        qkv=LoraLinear(layer.qkv, weights["qkv"], step),
        output=LoraLinear(layer.output, weights["output"], step),
        mlp=mlp,
    )
