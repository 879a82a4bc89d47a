"""Even split of a model over processes for the loader: heads, inner widths and the vocabulary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional

from engine.models.config.checkpoint import Checkpoint
from engine.models.config.config import ExpertTraits, ModelConfig
from engine.models.config.config_reader import ModelConfigError
from engine.models.layers import RMSNorm
from engine.models.linear import Linear
from engine.models.loading.split import MakeNorm
from engine.models.mlp import MLP
from engine.tensor_parallel.checkpoint import PartCheckpoint
from engine.tensor_parallel.group import Group
from engine.tensor_parallel.linears import GatheredLinear, SummedLinear, SummedMLP, SummedNorm


class Shard:
    """Part of a model in one process of a group."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def config(self, config: ModelConfig) -> ModelConfig:
        """Return the heads and widths of this part. Raises ModelConfigError naming an indivisible size."""
        return part_of_config(config, self._group.size)

    def checkpoint(self, model_dir: Path, config: ModelConfig) -> Checkpoint:
        """Return the tensors of this part."""
        return PartCheckpoint(model_dir, config, self._group.rank, self._group.size)

    def summed(self, linear: Linear) -> Linear:
        """Return a projection whose products are summed over the group."""
        return SummedLinear(linear, self._group)

    def summed_mlp(self, mlp: MLP) -> MLP:
        """Return an MLP branch whose outputs are summed over the group."""
        return SummedMLP(mlp, self._group)

    def norm_over_heads(self, weight: torch.Tensor, eps: float, offset: float, make: MakeNorm) -> RMSNorm:
        """Return a norm whose squares are summed over the group."""
        return SummedNorm(weight, eps, offset, self._group)

    def head_rows(self, weight: torch.Tensor) -> torch.Tensor:
        """Return an even share of the rows; an indivisible vocabulary is padded with rows of zeros at the end."""
        share = -(-weight.shape[0] // self._group.size)
        rows = weight[self._group.rank * share : (self._group.rank + 1) * share]
        return rows if rows.shape[0] == share else functional.pad(rows, (0, 0, 0, share - rows.shape[0]))

    def gathered(self, head: Linear, vocab_size: int) -> Linear:
        """Return the vocabulary projection with all outputs side by side."""
        return GatheredLinear(head, self._group, vocab_size)


def part_of_config(config: ModelConfig, size: int) -> ModelConfig:
    """Return the config of one of `size` equal parts. Raises ModelConfigError naming an indivisible size."""
    traits, experts = config.traits, config.traits.experts
    if experts is not None and experts.are_fused:
        raise ModelConfigError("tensor_parallel: a tensor with the projections of all experts is not split")
    if traits.recurrent is not None:
        raise ModelConfigError("tensor_parallel: recurrent layers are not split")
    if traits.has_sinks:
        raise ModelConfigError("tensor_parallel: attention with sinks is not split")
    has_dense_layers = experts is None or len(experts.layers) < config.num_layers
    inner = _share("intermediate_size", config.intermediate_size, size) if has_dense_layers else size
    return replace(
        config,
        num_heads=_share("num_attention_heads", config.num_heads, size),
        num_kv_heads=_share("num_key_value_heads", config.num_kv_heads, size),
        intermediate_size=inner,
        traits=replace(traits, experts=None if experts is None else _part_of_experts(experts, size)),
    )


def _part_of_experts(experts: ExpertTraits, size: int) -> ExpertTraits:
    """Return the traits with a share of every expert, so that ranks have equal work for any choice of experts."""
    shared_size = experts.shared_size
    return replace(
        experts,
        size=_share("moe_intermediate_size", experts.size, size),
        shared_size=None if shared_size is None else _share("shared_expert_intermediate_size", shared_size, size),
    )


def _share(name: str, number: int, size: int) -> int:
    if number % size:
        raise ModelConfigError(f"tensor_parallel: {size} does not divide {name} {number}; choose a divisor of it")
    return number // size
