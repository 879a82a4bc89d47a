"""Runs a scheduled batch: lays it out, calls the model, samples for the rows that need a token."""

from __future__ import annotations

from itertools import cycle

import torch

from engine.attention.base import KVCache
from engine.core.batch import RowResult, ScheduledBatch, ScheduledRow
from engine.core.input_buffers import InputBuffers
from engine.models.decoder import Model
from engine.sampling.sampler import Sampler, SampleRow


class ModelRunner:
    """The model, its KV caches and the sampler behind one call; keeps nothing of a batch.

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
        logits = self._model.logits(hidden)
        result = self._sampler.sample(logits, [_sample_row(batch.rows[index]) for index in sampled])
        for place, index in enumerate(sampled):
            logprobs = result.logprobs[place]
            results[index] = RowResult([result.token_ids[place]], None if logprobs is None else [logprobs])
        return results


def _sample_row(row: ScheduledRow) -> SampleRow:
    """What the sampler needs to know of a row."""
    seq = row.seq
    return SampleRow(
        params=seq.params,
        prompt_token_ids=seq.token_ids[: seq.num_prompt_tokens],
        output_token_ids=seq.token_ids[seq.num_prompt_tokens :],
    )
