"""Model run over whole texts for the quality check, without the step loop."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from engine.attention.base import AttentionBackend, ForwardContext, KVCache
from engine.models.decoder import Model

_BLOCK_SIZE = 16
_MAX_ROWS = 32
_MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class ScoredText:
    """Token ids, and the positions whose next token is scored."""

    token_ids: Sequence[int]
    is_target: Sequence[bool]


@dataclass(slots=True)
class _Row:
    """One sequence; number r of a batch owns blocks r * width .. (r + 1) * width."""

    index: int
    token_ids: list[int]
    num_computed: int = 0


class TextModel:
    """Model with its own KV pool for a few sequences."""

    def __init__(self, model: Model, backend: AttentionBackend, dtype: torch.dtype, device: torch.device) -> None:
        self._model = model
        self._backend = backend
        self._dtype = dtype
        self._device = device

    @torch.inference_mode()
    def perplexity(self, texts: Sequence[ScoredText]) -> float:
        """Return exp of the mean negative log-likelihood over all targets. Raises ValueError if there are none."""
        total, count = 0.0, 0
        longest = max((len(text.token_ids) for text in texts), default=0)
        caches = self._caches(1, longest)
        for text in texts:
            row = _Row(0, list(text.token_ids))
            while row.num_computed < len(row.token_ids):
                start = row.num_computed
                hidden = self._step(caches, [(row, min(_MAX_TOKENS, len(row.token_ids) - start))], longest)
                targets = [i for i in range(start, row.num_computed) if text.is_target[i]]
                if targets:
                    logits = self._model.logits(hidden[[i - start for i in targets]])
                    wanted = torch.tensor([row.token_ids[i + 1] for i in targets], device=self._device)
                    total += float(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum"))
                    count += len(targets)
        if not count:
            raise ValueError("the texts hold no token to predict")
        return math.exp(total / count)

    @torch.inference_mode()
    def answers(self, prompts: Sequence[Sequence[int]], stops: frozenset[int], max_tokens: int) -> list[list[int]]:
        """Return greedy continuations in order, without the stop token."""
        replies: list[list[int]] = [[] for _ in prompts]
        for batch in _batches(prompts):
            self._answer(batch, prompts, stops, max_tokens, replies)
        return replies

    def _answer(
        self,
        batch: Sequence[int],
        prompts: Sequence[Sequence[int]],
        stops: frozenset[int],
        max_tokens: int,
        replies: list[list[int]],
    ) -> None:
        longest = max(len(prompts[index]) for index in batch) + max_tokens
        caches = self._caches(len(batch), longest)
        rows = {index: _Row(place, list(prompts[index])) for place, index in enumerate(batch)}
        logits = torch.cat([self._prefill(caches, row, longest) for row in rows.values()])
        for _ in range(max_tokens):
            for index, token_id in zip(list(rows), logits.argmax(1).tolist(), strict=True):
                if token_id in stops:
                    del rows[index]
                else:
                    replies[index].append(token_id)
                    rows[index].token_ids.append(token_id)
            if not rows:
                return
            logits = self._model.logits(self._step(caches, [(row, 1) for row in rows.values()], longest))

    def _prefill(self, caches: list[KVCache], row: _Row, longest: int) -> torch.Tensor:
        """Return the logits [1, vocab] after the prompt."""
        while True:
            hidden = self._step(caches, [(row, min(_MAX_TOKENS, len(row.token_ids) - row.num_computed))], longest)
            if row.num_computed == len(row.token_ids):
                return self._model.logits(hidden[-1:])

    def _caches(self, num_rows: int, longest: int) -> list[KVCache]:
        num_blocks = num_rows * -(-longest // _BLOCK_SIZE)
        specs = self._model.attention_specs
        return [self._backend.allocate(num_blocks, _BLOCK_SIZE, spec, self._dtype) for spec in specs]

    def _step(self, caches: list[KVCache], work: Sequence[tuple[_Row, int]], longest: int) -> torch.Tensor:
        """Return the hidden states of the next tokens of each sequence."""
        width = -(-longest // _BLOCK_SIZE)
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        starts = [0]
        for row, num_tokens in work:
            span = range(row.num_computed, row.num_computed + num_tokens)
            token_ids += row.token_ids[span.start : span.stop]
            positions += span
            slots += [row.index * width * _BLOCK_SIZE + position for position in span]
            row.num_computed = span.stop
            starts.append(len(token_ids))
        tables = [list(range(row.index * width, (row.index + 1) * width)) for row, _ in work]
        context = ForwardContext(
            positions=self._tensor(positions),
            slot_mapping=self._tensor(slots),
            query_starts=starts,
            context_lens=[row.num_computed for row, _ in work],
            block_tables=torch.tensor(tables, device=self._device),
            block_size=_BLOCK_SIZE,
        )
        return self._model.forward(self._tensor(token_ids), context, caches)

    def _tensor(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def _batches(prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield the indices of prompts of similar length."""
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    for start in range(0, len(order), _MAX_ROWS):
        yield order[start : start + _MAX_ROWS]
