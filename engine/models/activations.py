"""Activation buffers of a decoder, shared by all layers and reused from step to step."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.models.config.config import ModelConfig

_MAX_CACHED_SIZES = 256


@dataclass(frozen=True, slots=True)
class Activations:
    """Views of the buffers for one number of tokens T; views of one name share memory whatever their T."""

    residual: torch.Tensor
    """[T, hidden]: residual stream."""
    normed: torch.Tensor
    """[T, hidden]: input of a projection."""
    qkv: torch.Tensor
    """[T, (heads + 2 * kv_heads) * head_dim]: queries, keys and values."""
    heads_to_norm: torch.Tensor
    """[T, heads + kv_heads, head_dim]: queries and keys of `qkv`."""
    heads_to_rotate: torch.Tensor
    """Queries and keys in the same memory; as complex64 [T, heads + kv_heads, head_dim / 2] for float32."""
    queries: torch.Tensor
    """[T, heads, head_dim]: queries of `qkv`."""
    keys: torch.Tensor
    """[T, kv_heads, head_dim]: keys of `qkv`."""
    values: torch.Tensor
    """[T, kv_heads, head_dim]: values of `qkv`."""
    gate_up: torch.Tensor
    """[T, 2 * intermediate]: gate and up projection."""
    gate: torch.Tensor
    """[T, intermediate]: first half of `gate_up`."""
    up: torch.Tensor
    """[T, intermediate]: second half of `gate_up`."""


class ActivationBuffers:
    """Buffers that grow to the largest step so far; only one step may use them at a time."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        self._config = config
        self._dtype = dtype
        self._device = device
        self._capacity = 0
        self._buffers: tuple[torch.Tensor, ...] = ()
        self._views: dict[int, Activations] = {}

    def of(self, num_tokens: int) -> Activations:
        """Return the views for a step of `num_tokens` tokens, with the content of the last step."""
        views = self._views.get(num_tokens)
        if views is None:
            if num_tokens > self._capacity:
                self._grow(num_tokens)
            if len(self._views) >= _MAX_CACHED_SIZES:
                self._views.clear()
            views = self._views[num_tokens] = self._cut(num_tokens)
        return views

    def _grow(self, capacity: int) -> None:
        config = self._config
        qkv_size = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        widths = (config.hidden_size, config.hidden_size, qkv_size, 2 * config.intermediate_size)
        self._views.clear()
        self._buffers = ()
        self._buffers = tuple(torch.empty(capacity, w, dtype=self._dtype, device=self._device) for w in widths)
        self._capacity = capacity

    def _cut(self, num_tokens: int) -> Activations:
        config = self._config
        residual, normed, qkv, gate_up = (buffer[:num_tokens] for buffer in self._buffers)
        heads = qkv.view(num_tokens, -1, config.head_dim)
        queries_keys = heads[:, : config.num_heads + config.num_kv_heads]
        return Activations(
            residual=residual,
            normed=normed,
            qkv=qkv,
            heads_to_norm=queries_keys,
            heads_to_rotate=queries_keys.view(torch.complex64) if self._dtype == torch.float32 else queries_keys,
            queries=heads[:, : config.num_heads],
            keys=queries_keys[:, config.num_heads :],
            values=heads[:, config.num_heads + config.num_kv_heads :],
            gate_up=gate_up,
            gate=gate_up[:, : config.intermediate_size],
            up=gate_up[:, config.intermediate_size :],
        )
