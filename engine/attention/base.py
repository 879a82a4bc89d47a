"""Attention interface between a model's layers and the paged KV pool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch

from engine.attention.step_states import StepStates


@dataclass(frozen=True, slots=True)
class ForwardContext:
    """Flattened batch of one step: R sequences, T tokens; sequence r has tokens query_starts[r]:query_starts[r+1].

    The tokens of a sequence are its next uncomputed ones: a prefill chunk, a decode token or draft tokens. Their keys
    and values go to `slot_mapping` before attention reads the sequence's `context_lens[r]` positions.
    """

    positions: torch.Tensor
    """int64 [T]: absolute position of each token in its sequence."""
    slot_mapping: torch.Tensor
    """int64 [T]: slot of each token's key and value, block_id * block_size + offset."""
    query_starts: list[int]
    """R + 1 cumulative query lengths."""
    context_lens: list[int]
    """Positions of each of the R sequences once this step's tokens are written."""
    block_tables: torch.Tensor
    """int64 [R, largest number of blocks]: block tables, padded with 0."""
    block_size: int
    on_device: DeviceLengths | None = None
    """Device copies of the lengths for a step that is captured; the lists above are then their upper bounds."""
    window_slots: torch.Tensor | None = None
    """int64 [T]: slots for layers with a sliding window, whose pool then has blocks of its own; None: as others."""
    window_tables: torch.Tensor | None = None
    """int64 [R, largest number of blocks]: block tables of these layers; blocks behind the window are 0."""
    sampled: list[int] | None = None
    """Indices of the tokens whose logits are needed, in order; None: unknown.

    A model may compute these logits within the step and return no hidden states of other tokens.
    """
    adapters: list[int | None] | None = None
    """Index of each sequence's adapter in the stacked weights, None for the base model; None: no sequence has any."""
    states: StepStates | None = None
    """Recurrent states of the sequences; None: the model has none."""


@dataclass(frozen=True, slots=True)
class DeviceLengths:
    """Lengths of a step for kernels, at addresses that stay the same from replay to replay."""

    query_starts: torch.Tensor
    """int32 [R + 1]; a sequence without tokens is padding."""
    context_lens: torch.Tensor
    """int32 [R]: positions of each sequence."""


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Shape of one layer's attention."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    sliding_window: int | None = None
    """Window of a query at position p: it sees keys p - window + 1 .. p; None: all keys up to p."""
    softcap: float | None = None
    """Cap of a score before masking: s becomes softcap * tanh(s / softcap); None: no cap."""
    sinks: torch.Tensor | None = field(default=None, compare=False)
    """[heads]: score of each head beside those of its keys, without a value; None: no such score."""


class KVCache(Protocol):
    """One layer's share of the KV pool."""

    def write(self, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim] at the given slots."""
        ...


class AttentionBackend(Protocol):
    """Causal attention of a step's queries over the paged KV pool."""

    name: str

    def allocate(self, num_blocks: int, block_size: int, spec: AttentionSpec, dtype: torch.dtype) -> KVCache:
        """Return an empty KV pool for one layer."""
        ...

    def prepare(self, context: ForwardContext) -> None:
        """Compute what all layers of a step share, such as gather indices and masks."""
        ...

    def forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, cache: KVCache, spec: AttentionSpec
    ) -> torch.Tensor:
        """Write keys and values, then attend; queries and result are [T, heads, head_dim]."""
        ...
