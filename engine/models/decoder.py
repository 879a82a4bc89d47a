"""The decoder that all families share, and the interface the step loop runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from engine.attention.base import AttentionBackend, AttentionSpec, ForwardContext, KVCache
from engine.models.activations import ActivationBuffers, Activations
from engine.models.config import ModelConfig
from engine.models.layers import RMSNorm, Rotary
from engine.models.linear import Linear


class Model(Protocol):
    """Turns tokens into hidden states and hidden states into logits."""

    config: ModelConfig
    attention_specs: list[AttentionSpec]
    """One per layer; the caller allocates one KV cache for each."""

    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Final hidden states [T, hidden] of token_ids int64 [T]; writes their keys and values to the caches."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 [N, vocab] of hidden states [N, hidden]."""
        ...


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Attention and MLP, each behind a norm and added to the residual."""

    input_norm: RMSNorm
    qkv: Linear
    """Rows: queries, keys, values; query and key heads with their halves interleaved."""
    qk_norm: RMSNorm | None
    output: Linear
    mlp_norm: RMSNorm
    gate_up: Linear
    down: Linear
    spec: AttentionSpec

    def forward(
        self, activations: Activations, rotations: torch.Tensor, backend: AttentionBackend, cache: KVCache
    ) -> None:
        """Update the residual in place."""
        self.input_norm.into(activations.residual, activations.normed)
        self.qkv.into(activations.normed, activations.qkv)
        if self.qk_norm is not None:
            self.qk_norm.into(activations.heads_to_norm, activations.heads_to_norm)
        Rotary.rotate(activations.heads_to_rotate, rotations)
        attended = backend.forward(activations.queries, activations.keys, activations.values, cache, self.spec)
        self.output.add_to(activations.residual, attended.flatten(1))
        self.mlp_norm.into(activations.residual, activations.normed)
        self.gate_up.into(activations.normed, activations.gate_up)
        functional.silu(activations.gate, inplace=True).mul_(activations.up)
        self.down.add_to(activations.residual, activations.gate)


class Decoder:
    """A whole model. Steps share buffers: one at a time, and not from two threads."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        embedding: torch.Tensor,
        layers: list[DecoderLayer],
        norm: RMSNorm,
        head: Linear,
        backend: AttentionBackend,
    ) -> None:
        self.config = config
        self.attention_specs = [layer.spec for layer in layers]
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head
        self._backend = backend
        self._rotary = Rotary(config.rope, config.head_dim, embedding.device)
        self._buffers = ActivationBuffers(config, embedding.dtype, embedding.device)

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Final hidden states [T, hidden] of token_ids int64 [T]; prepares the backend for the context itself."""
        self._backend.prepare(context)
        activations = self._buffers.of(token_ids.shape[0])
        torch.index_select(self._embedding, 0, token_ids, out=activations.residual)
        rotations = self._rotary.at(context.positions, max(context.context_lens))
        for layer, cache in zip(self._layers, caches, strict=True):
            layer.forward(activations, rotations, self._backend, cache)
        hidden = torch.empty_like(activations.residual)
        self._norm.into(activations.residual, hidden)
        return hidden

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 [N, vocab] of hidden states [N, hidden]."""
        return self._head.apply(hidden).float()
