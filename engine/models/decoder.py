"""Decoder of all families, and the model interface of the step loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.attention.base import AttentionBackend, AttentionSpec, ForwardContext, KVCache
from engine.models.activations import ActivationBuffers, Activations
from engine.models.config.config import ModelConfig
from engine.models.config.rope import RopeConfig
from engine.models.embedding import TokenEmbedding
from engine.models.layers import HeadGroupNorm, RMSNorm, Rotary
from engine.models.linear import Linear
from engine.models.mlp import MLP
from engine.models.recurrent_layer import RecurrentLayer


class Model(Protocol):
    """Model interface: tokens to hidden states, hidden states to logits."""

    config: ModelConfig
    attention_specs: list[AttentionSpec]
    """Attention of each layer that has any; the caller allocates one KV cache for each."""

    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Compute final hidden states, and write keys and values to the caches.

        Args:
            token_ids: int64 [T].
            context: Positions, KV slots and sampled tokens of the step.
            caches: One cache for each layer with attention.

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
    branch_scale: float | None = None
    """Factor of what both branches add to the residual; None: 1."""
    output_gate: Linear | None = None
    """Projection to the gate of each number of the attention's output; None: no gate."""

    def forward(
        self, activations: Activations, rotations: torch.Tensor, backend: AttentionBackend, cache: KVCache
    ) -> None:
        """Compute the layer and update the residual in place."""
        inputs = _read(activations, self.attention_norm)
        self.qkv.into(inputs, activations.qkv)
        if self.qk_norm is not None:
            self.qk_norm.into(activations.heads_to_norm, activations.heads_to_norm)
        Rotary.rotate(activations.heads_to_rotate, rotations)
        attended = backend.forward(activations.queries, activations.keys, activations.values, cache, self.spec)
        if self.output_gate is not None:
            attended = self.output_gate.apply(inputs).sigmoid_().view(attended.shape).mul_(attended)
        if self.attended_norm is None and self.branch_scale is None:
            self.output.add_to(activations.residual, attended.flatten(1))
        else:
            self.output.into(attended.flatten(1), activations.normed)
            self._add_branch(activations, self.attended_norm)
        inputs = _read(activations, self.mlp_norm)
        if self.mlp_output_norm is None and self.branch_scale is None:
            self.mlp.add_to(activations.residual, inputs, activations)
        else:
            self.mlp.into(activations.normed, inputs, activations)
            self._add_branch(activations, self.mlp_output_norm)

    def _add_branch(self, activations: Activations, norm: RMSNorm | None) -> None:
        """Add a branch's output in `normed` to the residual: normalized if `norm` is given, and scaled."""
        if norm is not None:
            norm.into(activations.normed, activations.normed)
        activations.residual.add_(activations.normed, alpha=self.branch_scale or 1.0)


def _read(activations: Activations, norm: RMSNorm | None) -> torch.Tensor:
    """Return a branch's input: the residual, normalized if `norm` is given."""
    if norm is None:
        return activations.residual
    norm.into(activations.residual, activations.normed)
    return activations.normed


class Decoder:
    """Complete decoder model. All steps share buffers, so only one may run at a time."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        embedding: TokenEmbedding,
        layers: Sequence[DecoderLayer | RecurrentLayer],
        norm: RMSNorm,
        head: Linear,
        backend: AttentionBackend,
    ) -> None:
        self.config = config
        self.attention_specs = [layer.spec for layer in layers if isinstance(layer, DecoderLayer)]
        self.embedding = embedding
        self.layers = layers
        self.norm = norm
        self.head = head
        self._backend = backend
        self.rotary = Rotary(config.rope, config.head_dim, embedding.device)
        self.local_rotary: Rotary | None = None
        if config.local_rope is not None:
            self.local_rotary = Rotary(config.local_rope, config.head_dim, embedding.device)
        self.still_rotary: Rotary | None = None
        """Rotations by nothing, for layers whose heads do not rotate; None: all layers rotate."""
        if config.traits.unrotated_layers:
            still = RopeConfig(theta=config.rope.theta, rotated_share=0.0)
            self.still_rotary = Rotary(still, config.head_dim, embedding.device)
        self._buffers = ActivationBuffers(config, embedding.dtype, embedding.device)

    @torch.inference_mode(False)
    def reserve(self, num_tokens: int, num_positions: int, num_state_slots: int = 0) -> None:
        """Grow buffers, tables and recurrent states to this size now; they keep their addresses until a larger step."""
        self._buffers.of(num_tokens)
        for layer in self.layers:
            if isinstance(layer, RecurrentLayer):
                mixer = layer.mixer
                mixer.memory.reserve(num_state_slots, mixer.traits, self.embedding.dtype, self.embedding.device)
        for rotary in (self.rotary, self.local_rotary, self.still_rotary):
            if rotary is not None:
                rotary.reserve(num_positions)

    def rotation_tables(self, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rotations [N, head_dim / 2] of at least `num_positions` positions: usual ones, and others.

        The others are those of layers with a sliding window, or of layers that do not rotate. Both are the same table
        in a model whose layers all rotate alike.
        """
        table, other = self.rotary.table(num_positions), self.local_rotary or self.still_rotary
        return table, table if other is None else other.table(num_positions)

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Return the final hidden states [T, hidden] of token_ids int64 [T]; the attention backend is prepared here."""
        self._backend.prepare(context)
        activations = self._buffers.of(token_ids.shape[0])
        self.embedding.into(token_ids, activations.residual)
        rotations = self._rotations(context)
        remaining = iter(caches)
        for layer, turns in zip(self.layers, rotations, strict=True):
            if isinstance(layer, RecurrentLayer):
                layer.forward(activations, context)
            else:
                layer.forward(activations, turns, self._backend, next(remaining))
        hidden = torch.empty_like(activations.residual)
        self.norm.into(activations.residual, hidden)
        return hidden

    def _rotations(self, context: ForwardContext) -> list[torch.Tensor]:
        """Return the rotations of the step's tokens for each layer."""
        positions, num_positions = context.positions, max(context.context_lens)
        usual = local = still = self.rotary.at(positions, num_positions)
        if self.local_rotary is not None:
            local = self.local_rotary.at(positions, num_positions)
        if self.still_rotary is not None:
            still = self.still_rotary.at(positions, num_positions)
        unrotated = self.config.traits.unrotated_layers
        return [
            still if index in unrotated else usual if window is None else local
            for index, window in enumerate(self.config.traits.sliding_windows)
        ]

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [N, vocab], of hidden states [N, hidden]."""
        logits = self.head.apply(hidden).float()
        if self.config.traits.logit_divisor is not None:
            logits.div_(self.config.traits.logit_divisor)
        softcap = self.config.traits.logit_softcap
        return logits if softcap is None else logits.div_(softcap).tanh_().mul_(softcap)
