"""The seam where a model is spread over processes: what each of them loads, and where their parts become one again."""

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
"""Of weight, epsilon and offset."""


class Split(Protocol):
    """One process's view of a model."""

    def config(self, config: ModelConfig) -> ModelConfig:
        """The shape of this process's part. Raises ModelConfigError when the model cannot be split like that."""
        ...

    def checkpoint(self, model_dir: Path, config: ModelConfig) -> Checkpoint:
        """The part's tensors of the checkpoint of a model with this (whole) config."""
        ...

    def summed(self, linear: Linear) -> Linear:
        """A projection whose inputs are split: its outputs summed over all processes."""
        ...

    def summed_mlp(self, mlp: MLP) -> MLP:
        """The same for a whole branch."""
        ...

    def norm_over_heads(self, weight: torch.Tensor, eps: float, offset: float, make: MakeNorm) -> RMSNorm:
        """A norm over the heads of all processes; `make` makes one over those of this process."""
        ...

    def head_rows(self, weight: torch.Tensor) -> torch.Tensor:
        """This process's rows of the vocabulary's projection [vocab, hidden]; the weight is left alone."""
        ...

    def gathered(self, head: Linear, vocab_size: int) -> Linear:
        """That projection with the rows of all processes side by side again."""
        ...


class Unsplit:
    """Nothing is split."""

    def config(self, config: ModelConfig) -> ModelConfig:
        """As it is."""
        return config

    def checkpoint(self, model_dir: Path, config: ModelConfig) -> Checkpoint:
        """All of it."""
        return Checkpoint(model_dir)

    def summed(self, linear: Linear) -> Linear:
        """As it is."""
        return linear

    def summed_mlp(self, mlp: MLP) -> MLP:
        """As it is."""
        return mlp

    def norm_over_heads(self, weight: torch.Tensor, eps: float, offset: float, make: MakeNorm) -> RMSNorm:
        """As it is."""
        return make(weight, eps, offset)

    def head_rows(self, weight: torch.Tensor) -> torch.Tensor:
        """All of them."""
        return weight

    def gathered(self, head: Linear, vocab_size: int) -> Linear:
        """As it is."""
        return head
