"""Runs a scheduled batch: lays it out, calls the model, samples for the rows that need a token."""

from __future__ import annotations

from functools import partial

import torch

from engine.attention.base import KVCache
from engine.models.decoder import Model
from engine.models.multi_step import MultiStep, MultiStepReport
from engine.protocol import TokenLogprobs
from engine.sampling.greedy import is_greedy, largest_tokens
from engine.sampling.sampler import Sampler
from engine.spec_decode.verifier import accept
from engine.step.batch import RowResult, ScheduledBatch, ScheduledRow
from engine.step.hidden_states import HiddenStates
from engine.step.input_buffers import InputBuffers
from engine.step.sample_rows import SampleRows


class ModelRunner:
    """The model, its KV caches and the sampler behind one call.

    Logits are computed for sampled positions only: a prompt of 4,000 tokens costs one row of the vocabulary, a row
    with drafts one for each draft and one for the token behind them.
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
        max_rows: int,
        max_blocks: int,
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._caches = caches
        self._sample_rows = sample_rows
        self._states: HiddenStates | None = None
        self._rounds: MultiStep | None = None
        self._buffers = InputBuffers.alternating(max_tokens, max_rows, max_blocks, block_size, device)

    def keep_states(self, rounds: MultiStep | None = None) -> HiddenStates:
        """Where the hidden states are kept from now on that tokens were chosen from; `rounds`: what a model may have
        follow a step in the same go."""
        self._rounds = rounds
        self._states = HiddenStates()
        return self._states

    @torch.inference_mode()
    def run(self, batch: ScheduledBatch) -> list[RowResult]:
        """One result a row, in order; writes the rows' keys and values. Running the same rows again is harmless."""
        buffers = next(self._buffers)
        token_ids, context = buffers.fill(batch.rows, tells_sampled=True)
        assert context.sampled is not None
        hidden = self._model.forward(token_ids, context, self._caches)
        if self._rounds is not None and (told := self._rounds.told()) is not None:
            return self._take_over(batch.rows, told, self._rounds)
        results = [RowResult([]) for _ in batch.rows]
        sampled = [index for index, row in enumerate(batch.rows) if row.samples]
        if not sampled:
            return results
        if len(context.sampled) != hidden.shape[0]:
            hidden = hidden.index_select(0, buffers.indices(context.sampled))
        rows = [batch.rows[index] for index in sampled]
        found = self._sample(self._model.logits(hidden), rows)
        if self._states is not None:
            self._states.keep(hidden, rows, found)
        for index, result in zip(sampled, found, strict=True):
            results[index] = result
        return results

    def _take_over(self, rows: list[ScheduledRow], told: MultiStepReport, rounds: MultiStep) -> list[RowResult]:
        """One result a row of a step and the rounds that followed it."""
        common = partial(RowResult, num_rounds=told.num_rounds, later_s=told.later_s)
        found = iter(zip(told.token_ids, told.num_drafted, strict=True))
        results = []
        for row in rows:
            token_ids, num_drafted = next(found) if row.samples else ([], 0)
            results.append(common(token_ids, num_drafted=num_drafted))
        if self._states is not None:
            pairs = [(row, result) for row, result in zip(rows, results, strict=True) if row.samples]
            self._states.keep_last(rounds.states(), *zip(*pairs, strict=True))
        return results

    def _sample(self, logits: torch.Tensor, rows: list[ScheduledRow]) -> list[RowResult]:
        """One result a row from the logits of its sampled positions, row after row."""
        if all(row.seq.grammar is None and is_greedy(row.seq.params) for row in rows):
            token_ids, is_invalid = largest_tokens(logits)
            return _accept_all(rows, token_ids, [None] * len(token_ids), is_invalid)
        of_rows = [self._sample_rows.of(row.seq, row.draft_token_ids) for row in rows]
        chosen = self._sampler.sample(logits, [sample_row for of_row in of_rows for sample_row in of_row])
        is_invalid = [False] * len(chosen.token_ids)
        for position in chosen.invalid_rows:
            is_invalid[position] = True
        return _accept_all(rows, chosen.token_ids, chosen.logprobs, is_invalid)


def _accept_all(
    rows: list[ScheduledRow], token_ids: list[int], logprobs: list[TokenLogprobs | None], is_invalid: list[bool]
) -> list[RowResult]:
    """One result a row; the lists hold a row's drafts' positions and the one behind them, row after row."""
    results = []
    start = 0
    for row in rows:
        end = start + 1 + len(row.draft_token_ids)
        part = slice(start, end)
        results.append(accept(row.draft_token_ids, token_ids[part], logprobs[part], is_invalid[part]))
        start = end
    return results
