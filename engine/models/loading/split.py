"""Interface of tensor parallelism for the loader: the part that each process loads, and the merge of outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

from engine.models.config.checkpoint import Checkpoint
from engine.models.config.config import ModelConfig
from engine.models.layers import RMSNorm
from engine.models.linear import Linear
from engine.models.mlp import MLP

MakeNorm = Callable[[torch.Tensor, float, float], RMSNorm]
"""Function that makes a norm from weight, epsilon and offset."""


class Split(Protocol):
    """Part of a model that one process holds."""

    def config(self, config: ModelConfig) -> ModelConfig:
        """Return the shape of this process's part.

        Raises:
            ModelConfigError: The model cannot be split into so many parts.
        """
        ...

    def checkpoint(self, model_dir: Path, config: ModelConfig) -> Checkpoint:
        """Return the tensors of this process's part; `config` is the whole model's."""
        ...

    def summed(self, linear: Linear) -> Linear:
        """Return a projection with split inputs whose outputs are summed over all processes."""
        ...

    def summed_mlp(self, mlp: MLP) -> MLP:
        """Return an MLP branch whose outputs are summed over all processes."""
        ...

    def norm_over_heads(self, weight: torch.Tensor, eps: float, offset: float, make: MakeNorm) -> RMSNorm:
        """Return a norm over the heads of all processes; `make` makes one over those of this process."""
        ...

    def head_rows(self, weight: torch.Tensor) -> torch.Tensor:
        """Return this process's rows of the vocabulary projection [vocab, hidden]; the weight is not changed."""
        ...

    def gathered(self, head: Linear, vocab_size: int) -> Linear:
        """Return the vocabulary projection with the rows of all processes side by side."""
        ...


class Unsplit:
    """Whole model in one process."""

    def config(self, config: ModelConfig) -> ModelConfig:
        """Return the config unchanged."""
        return config

    def checkpoint(self, model_dir: Path, config: ModelConfig) -> Checkpoint:
        """Return all tensors of the checkpoint."""
        return Checkpoint(model_dir, is_multimodal=config.is_multimodal)

    def summed(self, linear: Linear) -> Linear:
        """Return the projection unchanged."""
        return linear

    def summed_mlp(self, mlp: MLP) -> MLP:
        """Return the branch unchanged."""
        return mlp

    def norm_over_heads(self, weight: torch.Tensor, eps: float, offset: float, make: MakeNorm) -> RMSNorm:
        """Return the norm that `make` makes."""
        return make(weight, eps, offset)

    def head_rows(self, weight: torch.Tensor) -> torch.Tensor:
        """Return all rows."""
        return weight

    def gathered(self, head: Linear, vocab_size: int) -> Linear:
        """Return the projection unchanged."""
        return head
