"""The seam between a model's layers and the way attention over the paged KV pool is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class ForwardContext:
    """One step's batch, flattened: R rows, T tokens in row order (row r owns query_starts[r]:query_starts[r+1]).

    The tokens of a row are its next uncomputed ones (prefill chunk, decode token or speculative drafts alike);
    their keys and values are written to `slot_mapping` before attention reads the row's `context_lens[r]` positions.
    """

    positions: torch.Tensor
    """int64 [T]: absolute position of each token in its sequence."""
    slot_mapping: torch.Tensor
    """int64 [T]: block_id * block_size + offset, where each token's key and value go."""
    query_starts: list[int]
    """R + 1 cumulative query lengths."""
    context_lens: list[int]
    """R: positions that exist once this step's tokens are written (computed before + in this step)."""
    block_tables: torch.Tensor
    """int64 [R, max blocks of a row]; padded with 0."""
    block_size: int
    on_device: DeviceLengths | None = None
    """Set where a step is captured to be replayed with other lengths; the lists above are then their upper bounds."""
    sampled: list[int] | None = None
    """Tokens whose logits will be asked for, in order: a model may compute these with the step and leave the states of
    all others out. None: not told."""


@dataclass(frozen=True, slots=True)
class DeviceLengths:
    """A step's lengths as kernels read them, in memory that stays where it is from replay to replay."""

    query_starts: torch.Tensor
    """int32 [R + 1]; a row without tokens is padding."""
    context_lens: torch.Tensor
    """int32 [R]."""


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Shape of one layer's attention."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    sliding_window: int | None = None
    """A query at position p sees keys p - window + 1 .. p; None: all."""
    softcap: float | None = None
    """A score s counts as softcap * tanh(s / softcap), before masking; None: as it is."""


class KVCache(Protocol):
    """One layer's share of the KV pool."""

    def write(self, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim] at the given slots."""
        ...


class AttentionBackend(Protocol):
    """Computes causal attention of a step's queries over the paged KV pool."""

    name: str

    def allocate(self, num_blocks: int, block_size: int, spec: AttentionSpec, dtype: torch.dtype) -> KVCache:
        """An empty KV pool for one layer."""
        ...

    def prepare(self, context: ForwardContext) -> None:
        """Compute once per step what all layers share (gather indices, masks)."""
        ...

    def forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, cache: KVCache, spec: AttentionSpec
    ) -> torch.Tensor:
        """Write keys and values, attend; [T, heads, head_dim] in, the same shape out."""
        ...
