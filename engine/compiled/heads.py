"""Prediction heads of a model whose steps run compiled, carried out by the same threads."""

from __future__ import annotations

import torch

from engine.compiled.layout import AHEAD_WORK
from engine.compiled.model import MAX_TOKENS, CompiledModel
from engine.compiled.records import Memory
from engine.compiled.tickets import CHUNK
from engine.compiled.tiles import LANES
from engine.models.kept_weights import KeptWeight
from engine.models.prediction_heads import PredictionHeads
from engine.quantization.weights import quantize_channels


class CompiledHeads:
    """PredictionHeads by int8 weights, half the bytes to read: what they say is verified anyway.

    Where steps do not run compiled, the heads are computed as they are written down.
    """

    def __init__(self, model: CompiledModel, heads: PredictionHeads) -> None:
        self.num_heads = heads.num_heads
        self._heads = heads
        self._model = model
        self._memory = Memory()
        weights, hidden_size = heads.weights, model.config.hidden_size
        width = weights.gate_up.shape[0] // 2
        is_possible = model.has_head and hidden_size % CHUNK == 0 and width % LANES == 0
        self._max_tokens = MAX_TOKENS // max(2, self.num_heads) if is_possible else 0
        if is_possible:
            model.shape["ahead"] = (
                self.num_heads,
                self._memory.address(weights.hidden_norm),
                self._memory.address(weights.token_norm),
                self._memory.projection(_in_int8(weights.gate_up)),
                self._memory.projection(_in_int8(weights.down)),
                self._memory.address(weights.skip),
                self._memory.address(weights.norms),
            )
        self._embedded, self._gated, self._states = (
            torch.empty(self._max_tokens, size) for size in (hidden_size, width, weights.down.shape[0])
        )

    def look_ahead(self, hidden: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        """float32 [N, heads, vocab] of hidden states [N, hidden] and token_ids int64 [N]."""
        model, num_tokens = self._model, hidden.shape[0]
        if num_tokens > self._max_tokens or not model.runs_compiled(num_tokens):
            return self._heads.look_ahead(hidden, token_ids)
        embedded = self._embedded[:num_tokens]
        torch.index_select(model.decoder.embedding, 0, token_ids, out=embedded)
        model.make_room()
        logits = torch.empty(num_tokens, self.num_heads, model.config.vocab_size)
        step = model.step
        step["work"] = AHEAD_WORK
        step["num_tokens"] = num_tokens
        step["hidden"] = hidden.data_ptr()
        step["logits"] = logits.data_ptr()
        step["embedded"] = embedded.data_ptr()
        step["ahead_gated"] = self._gated.data_ptr()
        step["ahead_states"] = self._states.data_ptr()
        model.team.run()
        return logits


def _in_int8(weight: torch.Tensor) -> KeptWeight:
    found = quantize_channels(weight)
    return KeptWeight(found.codes, found.scales, None)
