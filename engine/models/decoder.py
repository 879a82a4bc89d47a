"""Decoder of all families, and the model interface of the step loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from engine.attention.base import AttentionBackend, AttentionSpec, ForwardContext, KVCache
from engine.models.activations import ActivationBuffers, Activations
from engine.models.config.config import ModelConfig
from engine.models.embedding import TokenEmbedding
from engine.models.layers import HeadGroupNorm, RMSNorm, Rotary
from engine.models.linear import Linear
from engine.models.mlp import MLP


class Model(Protocol):
    """Model interface: tokens to hidden states, hidden states to logits."""

    config: ModelConfig
    attention_specs: list[AttentionSpec]
    """Attention of each layer; the caller allocates one KV cache for each."""

    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Compute final hidden states, and write keys and values to the caches.

        Args:
            token_ids: int64 [T].
            context: Positions, KV slots and sampled tokens of the step.
            caches: One cache for each layer.

        Returns:
            Hidden states [T, hidden], or of the sampled tokens alone [sampled, hidden] if the context names any.
        """
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [N, vocab], of hidden states [N, hidden]."""
        ...


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Decoder layer: attention and MLP, each added to the residual, with norms before, after or around them."""

    attention_norm: RMSNorm | None
    """Norm of the attention's input; None: it reads the residual."""
    qkv: Linear
    """Projection to queries, keys and values; the halves of query and key heads are interleaved."""
    qk_norm: RMSNorm | HeadGroupNorm | None
    output: Linear
    attended_norm: RMSNorm | None
    """Norm of the attention's output."""
    mlp_norm: RMSNorm | None
    mlp: MLP
    mlp_output_norm: RMSNorm | None
    spec: AttentionSpec

    def forward(
        self, activations: Activations, rotations: torch.Tensor, backend: AttentionBackend, cache: KVCache
    ) -> None:
        """Compute the layer and update the residual in place."""
        self.qkv.into(_read(activations, self.attention_norm), activations.qkv)
        if self.qk_norm is not None:
            self.qk_norm.into(activations.heads_to_norm, activations.heads_to_norm)
        Rotary.rotate(activations.heads_to_rotate, rotations)
        attended = backend.forward(activations.queries, activations.keys, activations.values, cache, self.spec)
        if self.attended_norm is None:
            self.output.add_to(activations.residual, attended.flatten(1))
        else:
            self.output.into(attended.flatten(1), activations.normed)
            _add_normed(activations, self.attended_norm)
        inputs = _read(activations, self.mlp_norm)
        if self.mlp_output_norm is None:
            self.mlp.add_to(activations.residual, inputs, activations)
        else:
            self.mlp.into(activations.normed, inputs, activations)
            _add_normed(activations, self.mlp_output_norm)


def _read(activations: Activations, norm: RMSNorm | None) -> torch.Tensor:
    """Return a branch's input: the residual, normalized if `norm` is given."""
    if norm is None:
        return activations.residual
    norm.into(activations.residual, activations.normed)
    return activations.normed


def _add_normed(activations: Activations, norm: RMSNorm) -> None:
    """Normalize a branch's output in `normed` and add it to the residual."""
    norm.into(activations.normed, activations.normed)
    activations.residual.add_(activations.normed)


class Decoder:
    """Complete decoder model. All steps share buffers, so only one may run at a time."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        embedding: TokenEmbedding,
        layers: list[DecoderLayer],
        norm: RMSNorm,
        head: Linear,
        backend: AttentionBackend,
    ) -> None:
        self.config = config
        self.attention_specs = [layer.spec for layer in layers]
        self.embedding = embedding
        self.layers = layers
        self.norm = norm
        self.head = head
        self._backend = backend
        self.rotary = Rotary(config.rope, config.head_dim, embedding.device)
        self.local_rotary: Rotary | None = None
        if config.local_rope is not None:
            self.local_rotary = Rotary(config.local_rope, config.head_dim, embedding.device)
        self._buffers = ActivationBuffers(config, embedding.dtype, embedding.device)

    @torch.inference_mode(False)
    def reserve(self, num_tokens: int, num_positions: int) -> None:
        """Grow buffers and tables to this size now; they keep their addresses until a larger step."""
        self._buffers.of(num_tokens)
        for rotary in (self.rotary, self.local_rotary):
            if rotary is not None:
                rotary.reserve(num_positions)

    def rotation_tables(self, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rotations [N, head_dim / 2] of at least `num_positions` positions: global ones, and local ones.

        Both are the same table in a model whose layers all rotate alike.
        """
        table = self.rotary.table(num_positions)
        return table, table if self.local_rotary is None else self.local_rotary.table(num_positions)

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Return the final hidden states [T, hidden] of token_ids int64 [T]; the attention backend is prepared here."""
        self._backend.prepare(context)
        activations = self._buffers.of(token_ids.shape[0])
        self.embedding.into(token_ids, activations.residual)
        num_positions = max(context.context_lens)
        rotations = local = self.rotary.at(context.positions, num_positions)
        if self.local_rotary is not None:
            local = self.local_rotary.at(context.positions, num_positions)
        for layer, cache in zip(self.layers, caches, strict=True):
            turns = rotations if layer.spec.sliding_window is None else local
            layer.forward(activations, turns, self._backend, cache)
        hidden = torch.empty_like(activations.residual)
        self.norm.into(activations.residual, hidden)
        return hidden

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [N, vocab], of hidden states [N, hidden]."""
        logits = self.head.apply(hidden).float()
        softcap = self.config.traits.logit_softcap
        return logits if softcap is None else logits.div_(softcap).tanh_().mul_(softcap)
