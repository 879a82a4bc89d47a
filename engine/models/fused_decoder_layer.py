"""Decoder layer for CUDA with one kernel for all operations between two matrix products."""

from __future__ import annotations

import torch

from engine.attention.base import AttentionBackend, KVCache
from engine.attention.triton_paged import TritonPagedAttention
from engine.models.activations import Activations
from engine.models.decoder import DecoderLayer
from engine.models.fused_layers import FusedRMSNorm
from engine.models.layers import HeadGroupNorm
from engine.models.linear import DenseLinear


class FusedDecoderLayer(DecoderLayer):
    """Decoder layer whose backend normalizes, rotates and stores the heads in one kernel."""

    __slots__ = ()

    def forward(
        self, activations: Activations, rotations: torch.Tensor, backend: AttentionBackend, cache: KVCache
    ) -> None:
        """Compute the layer and update the residual in place."""
        assert isinstance(backend, TritonPagedAttention), f"a backend without fused heads: {backend.name}"
        residual, normed = activations.residual, activations.normed
        inputs = _normed(self.attention_norm, residual, normed)
        self.qkv.into(inputs, activations.qkv)
        head_norm = self.qk_norm
        if isinstance(head_norm, HeadGroupNorm):
            head_norm.into(activations.heads_to_norm, activations.heads_to_norm)
            head_norm = None
        assert head_norm is None or isinstance(head_norm, FusedRMSNorm)
        attended = backend.rotate_and_forward(activations.qkv, rotations, head_norm, cache, self.spec).flatten(1)
        if self.output_gate is not None:
            attended.mul_(self.output_gate.apply(inputs).sigmoid_())
        inputs = self._add_attended(attended, residual, normed)
        if self.mlp_output_norm is None and self.branch_scale is None:
            self.mlp.add_to(residual, inputs, activations)
        else:
            self.mlp.into(normed, inputs, activations)
            self._add_branch_fused(self.mlp_output_norm, residual, normed)

    def _add_attended(self, attended: torch.Tensor, residual: torch.Tensor, normed: torch.Tensor) -> torch.Tensor:
        """Add the attention branch to the residual and return the MLP's input."""
        if self.attended_norm is not None or self.branch_scale is not None:
            self.output.into(attended, normed)
            self._add_branch_fused(self.attended_norm, residual, normed)
        elif isinstance(self.output, DenseLinear) or not isinstance(self.mlp_norm, FusedRMSNorm):
            # A dense product adds to the residual at no extra cost.
            self.output.add_to(residual, attended)
        else:
            self.output.into(attended, normed)
            self.mlp_norm.after_add(residual, normed, normed)
            return normed
        return _normed(self.mlp_norm, residual, normed)

    def _add_branch_fused(self, norm: object, residual: torch.Tensor, branch: torch.Tensor) -> None:
        """Add a branch's output to the residual: normalized if `norm` is given, or else scaled."""
        if norm is None:
            residual.add_(branch, alpha=self.branch_scale or 1.0)
            return
        assert isinstance(norm, FusedRMSNorm)
        assert self.branch_scale is None, "a scaled branch with a norm after it"
        norm.add_to(residual, branch)


def _normed(norm: object, residual: torch.Tensor, normed: torch.Tensor) -> torch.Tensor:
    """Return a branch's input: the residual, normalized if `norm` is given."""
    if norm is None:
        return residual
    assert isinstance(norm, FusedRMSNorm)
    norm.into(residual, normed)
    return normed
