"""Model runner: lay out the scheduled batch, call the model, sample for the sequences that need a token."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from engine.attention.base import KVCache
from engine.attention.step_states import StateUse, StepStates
from engine.attention.torch_kv_cache import HeadMajorKVCache
from engine.kv_cache.state_slots import StateRequest, StateSlots
from engine.models.decoder import Model
from engine.models.multi_step import MultiStepReport
from engine.sampling.greedy import is_greedy, largest_tokens
from engine.sampling.sampler import Sampler
from engine.spec_decode.verifier import accept_batch
from engine.step.input_buffers import InputBuffers
from engine.step.sample_rows import SampleRows
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.step_output import SequenceResult, StepOutput

if TYPE_CHECKING:
    from engine.spec_decode.proposers.medusa import MedusaProposer


class ModelRunner:
    """The model, its KV caches and the sampler behind one call.

    Logits are computed for sampled positions only. A prompt of 4,000 tokens needs one row of the vocabulary. A
    sequence with drafts needs one for each draft and one for the token behind them.
    """

    def __init__(
        self,
        model: Model,
        sampler: Sampler,
        caches: list[KVCache],
        *,
        sample_rows: SampleRows,
        device: torch.device,
        block_size: int,
        max_tokens: int,
        max_num_seqs: int,
        max_blocks: int,
        places: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._caches = caches
        recurrent = model.config.traits.recurrent
        self._num_inputs = 0 if recurrent is None else recurrent.window
        """Inputs that the convolution of a recurrent layer reads; 0: the model has none."""
        self._sample_rows = sample_rows
        self.heads: MedusaProposer | None = None
        """Prediction heads, run where a step requires them; further steps in the same call use them too."""
        self.states: StateSlots | None = None
        """Slots of recurrent states; None: the model has none, or its steps are made up."""
        self._buffers = InputBuffers.alternating(max_tokens, max_num_seqs, max_blocks, block_size, device, places)

    def release_pool(self) -> None:
        """Give the memory of blocks that made-up batches wrote back to the system, where pages can be given back."""
        for cache in self._caches:
            if isinstance(cache, HeadMajorKVCache):
                cache.release()

    @torch.inference_mode()
    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        """Compute a step and those that follow it; writes the sequences' keys and values.

        Executing the same sequences again is harmless.
        """
        buffers = next(self._buffers)
        token_ids, context = buffers.fill(scheduled.chunks, with_sampled=True)
        sampled_tokens = context.sampled
        assert sampled_tokens is not None
        if self._num_inputs:
            uses = self._state_uses(scheduled.chunks)
            states = StepStates.of(uses, context.query_starts, self._num_inputs, token_ids.device)
            context = replace(context, states=states)
        if self.heads is not None:
            self.heads.prepare(scheduled)
        hidden = self._model.forward(token_ids, context, self._caches)
        if self.heads is not None and (report := self.heads.report()) is not None:
            return self._output_of(scheduled.chunks, report, self.heads)
        results = [SequenceResult([]) for _ in scheduled.chunks]
        sampled = [index for index, chunk in enumerate(scheduled.chunks) if chunk.samples]
        if not sampled:
            return StepOutput(results)
        if len(sampled_tokens) != hidden.shape[0]:
            hidden = hidden.index_select(0, buffers.indices(sampled_tokens))
        chunks = [scheduled.chunks[index] for index in sampled]
        found = self._sample(self._model.logits(hidden), chunks)
        for index, result in zip(sampled, found, strict=True):
            results[index] = result
        if self.heads is None or not scheduled.predicts:
            return StepOutput(results)
        return StepOutput(results, self.heads.predict(hidden, chunks, found))

    def _state_uses(self, chunks: list[ScheduledChunk]) -> list[StateUse]:
        """Return the recurrent states that a step reads and writes; those of a made-up step mean nothing."""
        if self.states is None:
            count = len(chunks)
            return [StateUse(slot if chunk.start else None, count + slot) for slot, chunk in enumerate(chunks)]
        assert not any(chunk.draft_token_ids or chunk.is_stored for chunk in chunks)
        return self.states.plan(
            StateRequest(chunk.seq.seq_id, chunk.seq.block_table, chunk.start, chunk.end) for chunk in chunks
        )

    def _output_of(self, chunks: list[ScheduledChunk], report: MultiStepReport, heads: MedusaProposer) -> StepOutput:
        """Return the output of several steps that were computed in one call."""
        found = iter(zip(report.token_ids, report.num_drafted, report.predicted, strict=True))
        results = []
        for chunk in chunks:
            token_ids, num_drafted, predicted = next(found) if chunk.samples else ([], 0, None)
            results.append(SequenceResult(token_ids, num_drafted=num_drafted, predicted=predicted))
        return StepOutput(results, heads.seen([token_ids[-1] for token_ids in report.token_ids]), report.steps)

    def _sample(self, logits: torch.Tensor, chunks: list[ScheduledChunk]) -> list[SequenceResult]:
        """Return one result a sequence from the logits of its sampled positions, sequence after sequence."""
        if all(chunk.seq.grammar is None and is_greedy(chunk.seq.params) for chunk in chunks):
            token_ids, is_invalid = largest_tokens(logits)
            return accept_batch(
                [chunk.draft_token_ids for chunk in chunks], token_ids, [None] * len(token_ids), is_invalid
            )
        of_seqs = [self._sample_rows.of(chunk.seq, chunk.draft_token_ids) for chunk in chunks]
        chosen = self._sampler.sample(logits, [sample_row for of_seq in of_seqs for sample_row in of_seq])
        is_invalid = [False] * len(chosen.token_ids)
        for position in chosen.invalid_rows:
            is_invalid[position] = True
        return accept_batch([chunk.draft_token_ids for chunk in chunks], chosen.token_ids, chosen.logprobs, is_invalid)
