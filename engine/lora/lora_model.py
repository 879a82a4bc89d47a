"""Model whose steps may use several adapters at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.attention.base import ForwardContext, KVCache
from engine.lora.lora_linear import StepAdapters
from engine.lora.step_rows import StepPart, group_rows, part_of
from engine.lora.token_adapters import TokenAdapterModel
from engine.models.decoder import Decoder, Model


@dataclass(frozen=True, slots=True)
class TokenSteps:
    """Steps of few tokens a sequence on a GPU, in which every token names its adapter."""

    adapters: TokenAdapterModel
    model: Model
    """Model whose tokens name their adapters, captured where it can be."""


class LoraModel:
    """Model of the same interface for steps with adapters; steps without any are the base model's own.

    On a CPU torch computes sequences with adapters, also where the base model has compiled steps. The sequences without
    adapters run apart then, so that their numbers do not depend on the others. On a GPU torch computes prompts, and
    kernels decode; those steps are captured like others.
    """

    def __init__(
        self,
        base: Model,
        decoder: Decoder,
        step: StepAdapters,
        *,
        runs_base_apart: bool,
        token_steps: TokenSteps | None = None,
    ) -> None:
        """Wrap a model.

        Args:
            base: Model for sequences without adapters.
            decoder: Decoder with the same weights, whose projections add the products of the adapters of `step`.
            step: Adapters of the step under way.
            runs_base_apart: True if sequences without adapters are always computed by `base`.
            token_steps: Steps of few tokens a sequence by kernels; None: torch computes them too.
        """
        self.config = base.config
        self.attention_specs = base.attention_specs
        self._base = base
        self._decoder = decoder
        self._step = step
        self._runs_base_apart = runs_base_apart
        self._token_steps = token_steps

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Compute final hidden states, and write keys and values to the caches.

        Args:
            token_ids: int64 [T].
            context: Positions, KV slots, adapters and sampled tokens of the step.
            caches: One cache for each layer.

        Returns:
            Hidden states [T, hidden], or of the sampled tokens alone [sampled, hidden] if the context names any.
        """
        adapters = context.adapters
        if adapters is None:
            return self._base.forward(token_ids, context, caches)
        steps = self._token_steps
        if steps is not None and steps.adapters.fill(context.query_starts, adapters):
            return steps.model.forward(token_ids, context, caches)
        if not self._runs_base_apart or None not in adapters:
            return self._forward_adapted(token_ids, context, caches)
        num_found = token_ids.shape[0] if context.sampled is None else len(context.sampled)
        hidden = torch.empty(num_found, self.config.hidden_size, dtype=self._decoder.embedding.dtype)
        plain = part_of(context, [seq for seq, adapter in enumerate(adapters) if adapter is None])
        adapted = part_of(context, [seq for seq, adapter in enumerate(adapters) if adapter is not None])
        found = self._base.forward(token_ids.index_select(0, plain.tokens), plain.context, caches)
        _place(hidden, plain, found)
        found = self._forward_adapted(token_ids.index_select(0, adapted.tokens), adapted.context, caches)
        _place(hidden, adapted, found)
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [N, vocab], of hidden states [N, hidden]."""
        return self._base.logits(hidden)

    def _forward_adapted(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        assert context.adapters is not None
        self._step.groups = group_rows(context.query_starts, context.adapters, token_ids.device)
        try:
            return self._decoder.forward(token_ids, context, caches)
        finally:
            self._step.groups = []


def _place(hidden: torch.Tensor, part: StepPart, found: torch.Tensor) -> None:
    """Copy a part's hidden states of sampled tokens to their places in those of the step."""
    sampled = part.context.sampled
    if sampled is not None and found.shape[0] != len(sampled):
        found = found.index_select(0, torch.tensor(sampled, dtype=torch.int64))
    hidden.index_copy_(0, part.places, found)
