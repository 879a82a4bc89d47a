"""Model of steps of few tokens each, in which every token names its adapter: they can be captured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from engine.attention.base import ForwardContext, KVCache
from engine.lora.lora_linear import StepAdapters, TokenAdapters
from engine.lora.stacked_weights import AddTokenProducts
from engine.models.decoder import Decoder

_MAX_TOKENS = 1024
_MAX_QUERY_LEN = 16
"""Tokens of a sequence above which the products of whole groups of tokens are faster."""


class TokenAdapterModel:
    """Decoder whose projections look each token's adapter up; the indices stay where a graph reads them."""

    def __init__(self, decoder: Decoder, step: StepAdapters, add: AddTokenProducts, device: torch.device) -> None:
        """Wrap a decoder.

        Args:
            decoder: Decoder whose projections add the products of the adapters of `step`.
            step: Adapters of the step under way.
            add: Adds the products of tokens, `engine.kernels.token_adapters.add_token_products`.
            device: Device of the model.
        """
        self.config = decoder.config
        self.attention_specs = decoder.attention_specs
        self._decoder = decoder
        self._step = step
        self._add = add
        self._indices = torch.full((_MAX_TOKENS,), -1, dtype=torch.int32, device=device)

    def fill(self, query_starts: Sequence[int], adapters: Sequence[int | None]) -> bool:
        """Name the adapters of the next step's tokens, where the step is small enough; return whether it is."""
        if query_starts[-1] > _MAX_TOKENS:
            return False
        indices: list[int] = []
        for (start, end), adapter in zip(pairwise(query_starts), adapters, strict=True):
            if end - start > _MAX_QUERY_LEN:
                return False
            indices += [-1 if adapter is None else adapter] * (end - start)
        # Tokens that a captured step has beyond those of this one have no adapter.
        indices += [-1] * (_MAX_TOKENS - len(indices))
        staged = torch.tensor(indices, dtype=torch.int32, pin_memory=self._indices.is_cuda)
        self._indices.copy_(staged, non_blocking=True)
        return True

    def reserve(self, num_tokens: int, num_positions: int, num_state_slots: int) -> None:
        """Grow the decoder's buffers and tables to this size now."""
        self._decoder.reserve(num_tokens, num_positions, num_state_slots)

    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Return the final hidden states [T, hidden] of tokens whose adapters `fill` named."""
        self._step.by_token = TokenAdapters(self._indices[: token_ids.shape[0]], self._add)
        try:
            return self._decoder.forward(token_ids, context, caches)
        finally:
            self._step.by_token = None

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [N, vocab], of hidden states [N, hidden]."""
        return self._decoder.logits(hidden)
