"""Runs a scheduled batch: lays it out, calls the model, samples for the rows that need a token."""

from __future__ import annotations

from itertools import cycle
from weakref import WeakKeyDictionary

import torch

from engine.attention.base import KVCache
from engine.core.batch import RowResult, ScheduledBatch, ScheduledRow
from engine.core.input_buffers import InputBuffers
from engine.core.sequence import Sequence
from engine.models.decoder import Model
from engine.sampling.penalties import PenaltyState, has_penalties
from engine.sampling.sampler import Sampler, SampleRow


class ModelRunner:
    """The model, its KV caches and the sampler behind one call.

    Logits are computed for sampled positions only: a prompt of 4,000 tokens costs one row of the vocabulary.
    """

    def __init__(
        self,
        model: Model,
        sampler: Sampler,
        caches: list[KVCache],
        *,
        device: torch.device,
        block_size: int,
        max_tokens: int,
        max_rows: int,
        max_blocks: int,
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._caches = caches
        self._device = device
        # Token counts live as long as their sequence, over preemptions too.
        self._penalties: WeakKeyDictionary[Sequence, PenaltyState] = WeakKeyDictionary()
        # On an accelerator a step's copies may still run while the next step is laid out.
        num_buffers = 1 if device.type == "cpu" else 2
        self._buffers = cycle(
            [InputBuffers(max_tokens, max_rows, max_blocks, block_size, device) for _ in range(num_buffers)]
        )

    @torch.inference_mode()
    def run(self, batch: ScheduledBatch) -> list[RowResult]:
        """One result a row, in order; writes the rows' keys and values. Running the same rows again is harmless."""
        buffers = next(self._buffers)
        token_ids, context = buffers.fill(batch.rows)
        hidden = self._model.forward(token_ids, context, self._caches)
        sampled = [index for index, row in enumerate(batch.rows) if row.samples]
        results = [RowResult([]) for _ in batch.rows]
        if not sampled:
            return results
        last_positions = [context.query_starts[index + 1] - 1 for index in sampled]
        if len(last_positions) != hidden.shape[0]:
            hidden = hidden.index_select(0, buffers.indices(last_positions))
        rows = [self._sample_row(batch.rows[index]) for index in sampled]
        for index, result in zip(sampled, self._sample(self._model.logits(hidden), rows), strict=True):
            results[index] = result
        return results

    def _sample(self, logits: torch.Tensor, rows: list[SampleRow]) -> list[RowResult]:
        chosen = self._sampler.sample(logits, rows)
        results = [
            RowResult([token_id], None if logprobs is None else [logprobs])
            for token_id, logprobs in zip(chosen.token_ids, chosen.logprobs, strict=True)
        ]
        for index in chosen.invalid_rows:
            results[index] = RowResult([], error="no token can be chosen: the model's logits are not numbers")
        return results

    def _sample_row(self, row: ScheduledRow) -> SampleRow:
        """What the sampler needs to know of a row; the prompt only through its penalties."""
        seq = row.seq
        penalties = None
        if has_penalties(seq.params):
            penalties = self._penalties.get(seq)
            if penalties is None:
                prompt = seq.token_ids[: seq.num_prompt_tokens]
                penalties = self._penalties[seq] = PenaltyState(seq.params, prompt, self._device)
        return SampleRow(
            params=seq.params,
            position=seq.num_tokens,
            prompt_token_ids=(),
            output_token_ids=seq.token_ids[seq.num_prompt_tokens :],
            penalties=penalties,
        )
