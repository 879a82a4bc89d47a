"""Loader of a model's norms: around branches, and of query and key heads."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.models.config.config import ModelConfig
from engine.models.layer_ops import LayerOps
from engine.models.layers import HeadGroupNorm, RMSNorm
from engine.models.loading.expert_loader import ProjectionSource
from engine.models.loading.split import Split

_NORMS = {
    "before": ("input_layernorm", None, "post_attention_layernorm", None),
    "around": (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
    "after": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
}
"""Checkpoint names of the norms before and after attention and before and after the MLP."""

RotationOrder = Callable[[torch.Tensor, int], torch.Tensor]
"""Function from heads and an axis to the heads in the order of `Rotary` along it."""


class NormLoader:
    """Loader of the norms of one model."""

    def __init__(
        self, config: ModelConfig, source: ProjectionSource, ops: LayerOps, split: Split, order: RotationOrder
    ) -> None:
        """Create the loader.

        Args:
            config: Shape of the model.
            source: Reader of weights.
            ops: Makers of norms.
            split: Part of the model for this process.
            order: Function that orders the numbers of query and key heads.
        """
        self._config = config
        self._source = source
        self._ops = ops
        self._split = split
        self._order = order

    def named(self, name: str) -> RMSNorm:
        """Return a norm over the hidden size."""
        config = self._config
        weight = self._source.copy(name, config.hidden_size)
        return self._ops.norm(weight, config.rms_norm_eps, config.traits.norm_offset)

    def of_layer(self, prefix: str) -> list[RMSNorm | None]:
        """Return the norms before and after attention and before and after the MLP; None: there is none."""
        traits = self._config.traits
        names = traits.norm_names or _NORMS[traits.norms]
        return [self.named(f"{prefix}.{name}.weight") if name else None for name in names]

    def of_heads(self, prefix: str) -> RMSNorm | HeadGroupNorm | None:
        """Return the norm of query and key heads under a prefix; None: there is none."""
        config = self._config
        if config.traits.qk_norm is None:
            return None
        if config.traits.qk_norm == "all_heads":
            queries = self._over_heads(f"{prefix}.q_norm.weight", config.num_heads)
            keys = self._over_heads(f"{prefix}.k_norm.weight", config.num_kv_heads)
            return HeadGroupNorm(queries, keys, config.num_heads)
        counts = {"q": config.num_heads, "k": config.num_kv_heads}
        weights = [
            self._order(self._source.copy(f"{prefix}.{name}_norm.weight", config.head_dim), 0).expand(count, -1)
            for name, count in counts.items()
        ]
        return self._ops.norm(torch.cat(weights), config.rms_norm_eps, config.traits.norm_offset)

    def _over_heads(self, name: str, num_heads: int) -> RMSNorm:
        config = self._config
        weight = self._source.copy(name, num_heads * config.head_dim).view(num_heads, config.head_dim)
        weight = self._order(weight, 1).flatten()
        return self._split.norm_over_heads(weight, config.rms_norm_eps, config.traits.norm_offset, self._ops.norm)
