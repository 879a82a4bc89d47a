"""Stacked weights of all adapters of a model, allocated once: loading an adapter fills its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.lora.adapter_file import AdapterFile, LowRankWeights
from engine.lora.projections import AdaptedProjection, ProjectionName, adapted_projections
from engine.lora.step_rows import AdapterGroup
from engine.models.config.config import ModelConfig


class AddTokenProducts(Protocol):
    """Function that adds each token's product: `engine.kernels.token_adapters.add_token_products`."""

    def __call__(
        self,
        out: torch.Tensor,
        inputs: torch.Tensor,
        adapters: torch.Tensor,
        weights: torch.Tensor,
        table: torch.Tensor,
        spans: torch.Tensor,
        *,
        max_rank: int,
        max_size: int,
    ) -> None:
        """Add the products to `out` in place."""
        ...


@dataclass(frozen=True, slots=True)
class _Up:
    """Second product of one module."""

    weight: torch.Tensor
    """[rank, size]."""
    low: slice
    """Columns of the first product."""
    outputs: slice


@dataclass(frozen=True, slots=True)
class LowRankProduct:
    """Product of one adapter with the inputs of one projection: one matrix down, one up for each module."""

    down: torch.Tensor
    """[in, rank * modules]."""
    ups: tuple[_Up, ...]

    def add_to(self, out: torch.Tensor, inputs: torch.Tensor, group: AdapterGroup) -> None:
        """Add the product of the group's rows of `inputs` [T, in] to the same rows of `out` [T, out]."""
        rows = group.rows
        if isinstance(rows, slice):
            low = torch.mm(inputs if group.is_whole else inputs[rows], self.down)
            for up in self.ups:
                out[rows, up.outputs].addmm_(low[:, up.low], up.weight)
        else:
            low = torch.mm(inputs.index_select(0, rows), self.down)
            for up in self.ups:
                out[:, up.outputs].index_add_(0, rows, torch.mm(low[:, up.low], up.weight))


class ProjectionWeights:
    """Weights of all adapters for one projection of one layer, in one buffer that never moves."""

    def __init__(
        self, projection: AdaptedProjection, num_adapters: int, max_rank: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.projection = projection
        self._memory = torch.zeros(num_adapters, projection.num_weights(max_rank), dtype=dtype, device=device)
        self._products: list[LowRankProduct | None] = [None] * num_adapters
        modules = projection.modules
        self._max_rank = max_rank
        self._max_size = max(module.size for module in modules)
        # Rank, first row of the matrix down and place of the matrix up, for kernels that look them up.
        self._table = torch.zeros(num_adapters, len(modules), 3, dtype=torch.int64, device=device)
        self._spans = torch.tensor([(module.start, module.size) for module in modules], device=device)

    def product(self, adapter: int) -> LowRankProduct | None:
        """Return an adapter's product; None if it leaves this projection as it is."""
        return self._products[adapter]

    def add_by_token(
        self, out: torch.Tensor, inputs: torch.Tensor, adapters: torch.Tensor, add: AddTokenProducts
    ) -> None:
        """Add the products of the tokens' adapters, int32 [T] (-1: none), of inputs [T, in] to `out` [T, out]."""
        add(
            out,
            inputs,
            adapters,
            self._memory,
            self._table,
            self._spans,
            max_rank=self._max_rank,
            max_size=self._max_size,
        )

    def store(self, adapter: int, parts: Sequence[LowRankWeights]) -> None:
        """Replace the weights of an adapter that no step uses."""
        table = torch.zeros(len(self.projection.modules), 3, dtype=torch.int64)
        if not parts:
            self._products[adapter] = None
            self._table[adapter].copy_(table)
            return
        rank, in_size = parts[0].down.shape
        memory = self._memory[adapter]
        num_low = rank * len(parts)
        down, start = memory[: num_low * in_size].view(num_low, in_size), num_low * in_size
        ups: list[_Up] = []
        for index, part in enumerate(parts):
            low = slice(index * rank, (index + 1) * rank)
            down[low].copy_(part.down)
            up = memory[start : start + part.module.size * rank].view(rank, part.module.size)
            up.copy_(part.up.t())
            ups.append(_Up(up, low, slice(part.module.start, part.module.end)))
            table[self.projection.modules.index(part.module)] = torch.tensor((rank, index * rank, start))
            start += part.module.size * rank
        self._table[adapter].copy_(table)
        self._products[adapter] = LowRankProduct(down.t(), tuple(ups))


class StackedWeights:
    """Weights of all adapters for every projection of a model."""

    def __init__(
        self, config: ModelConfig, *, num_adapters: int, max_rank: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.config = config
        self.num_adapters = num_adapters
        self.max_rank = max_rank
        self.device = device
        self.layers: list[dict[ProjectionName, ProjectionWeights]] = [
            {
                projection.name: ProjectionWeights(projection, num_adapters, max_rank, dtype, device)
                for projection in adapted_projections(config, layer)
            }
            for layer in range(config.num_layers)
        ]

    @torch.inference_mode()
    def store(self, adapter: int, file: AdapterFile) -> None:
        """Copy an adapter's weights to its place, which no step uses; from any thread. Raises AdapterError."""
        for layer, projections in enumerate(self.layers):
            for weights in projections.values():
                weights.store(adapter, file.weights(layer, weights.projection))


def adapter_bytes(config: ModelConfig, max_rank: int, dtype: torch.dtype) -> int:
    """Return the bytes of the place of one adapter in the stacked weights."""
    numbers = sum(
        projection.num_weights(max_rank)
        for layer in range(config.num_layers)
        for projection in adapted_projections(config, layer)
    )
    return numbers * dtype.itemsize
