"""Prediction heads at random, of any size."""

from __future__ import annotations

import torch

from engine.models.prediction_heads import HeadWeights


def made_up_heads(hidden_size: int, *, num_heads: int = 3, width: int = 32, seed: int = 1) -> HeadWeights:
    """Numbers that bfloat16 holds, as in checkpoints."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> torch.Tensor:
        drawn: torch.Tensor = torch.randn(shape, generator=generator) / shape[-1] ** 0.5
        return drawn.bfloat16().float()

    return HeadWeights(
        hidden_norm=1.0 + numbers(hidden_size),
        token_norm=1.0 + numbers(hidden_size),
        gate_up=numbers(2 * width, 2 * hidden_size),
        down=numbers(num_heads * hidden_size, width),
        skip=numbers(num_heads, hidden_size),
        norms=1.0 + numbers(num_heads, hidden_size),
    )
