"""Model run over whole texts for the quality check, without the step loop."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from engine.attention.base import AttentionBackend, ForwardContext, KVCache
from engine.models.decoder import Model

_BLOCK_SIZE = 16
_MAX_NUM_SEQS = 32
_MAX_TOKENS = 512
_LOGITS_TOGETHER = 32
"""Number of tokens whose logits are computed at once, by the step that serves, in little memory."""


@dataclass(frozen=True, slots=True)
class ScoredText:
    """Token ids, and the positions whose next token is scored."""

    token_ids: Sequence[int]
    is_target: Sequence[bool]


@dataclass(slots=True)
class _TextSequence:
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
            seq = _TextSequence(0, list(text.token_ids))
            while seq.num_computed < len(seq.token_ids):
                start = seq.num_computed
                hidden = self._step(caches, [(seq, min(_MAX_TOKENS, len(seq.token_ids) - start))], longest)
                targets = [i for i in range(start, seq.num_computed) if text.is_target[i]]
                if targets:
                    wanted = torch.tensor([seq.token_ids[i + 1] for i in targets], device=self._device)
                    total += self._loss(hidden[[i - start for i in targets]], wanted)
                    count += len(targets)
        if not count:
            raise ValueError("the texts hold no token to predict")
        return math.exp(total / count)

    def _loss(self, hidden: torch.Tensor, wanted: torch.Tensor) -> float:
        """Return the summed negative log-likelihood of the wanted tokens behind hidden states [T, hidden]."""
        parts = zip(torch.split(hidden, _LOGITS_TOGETHER), torch.split(wanted, _LOGITS_TOGETHER), strict=True)
        return sum(
            float(torch.nn.functional.cross_entropy(self._model.logits(part), tokens, reduction="sum"))
            for part, tokens in parts
        )

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
        seqs = {index: _TextSequence(place, list(prompts[index])) for place, index in enumerate(batch)}
        logits = torch.cat([self._prefill(caches, seq, longest) for seq in seqs.values()])
        for _ in range(max_tokens):
            for index, token_id in zip(list(seqs), logits.argmax(1).tolist(), strict=True):
                if token_id in stops:
                    del seqs[index]
                else:
                    replies[index].append(token_id)
                    seqs[index].token_ids.append(token_id)
            if not seqs:
                return
            logits = self._model.logits(self._step(caches, [(seq, 1) for seq in seqs.values()], longest))

    def _prefill(self, caches: list[KVCache], seq: _TextSequence, longest: int) -> torch.Tensor:
        """Return the logits [1, vocab] after the prompt."""
        while True:
            hidden = self._step(caches, [(seq, min(_MAX_TOKENS, len(seq.token_ids) - seq.num_computed))], longest)
            if seq.num_computed == len(seq.token_ids):
                return self._model.logits(hidden[-1:])

    def _caches(self, num_seqs: int, longest: int) -> list[KVCache]:
        num_blocks = num_seqs * -(-longest // _BLOCK_SIZE)
        specs = self._model.attention_specs
        return [self._backend.allocate(num_blocks, _BLOCK_SIZE, spec, self._dtype) for spec in specs]

    def _step(self, caches: list[KVCache], work: Sequence[tuple[_TextSequence, int]], longest: int) -> torch.Tensor:
        """Return the hidden states of the next tokens of each sequence."""
        width = -(-longest // _BLOCK_SIZE)
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        starts = [0]
        for seq, num_tokens in work:
            span = range(seq.num_computed, seq.num_computed + num_tokens)
            token_ids += seq.token_ids[span.start : span.stop]
            positions += span
            slots += [seq.index * width * _BLOCK_SIZE + position for position in span]
            seq.num_computed = span.stop
            starts.append(len(token_ids))
        tables = [list(range(seq.index * width, (seq.index + 1) * width)) for seq, _ in work]
        context = ForwardContext(
            positions=self._tensor(positions),
            slot_mapping=self._tensor(slots),
            query_starts=starts,
            context_lens=[seq.num_computed for seq, _ in work],
            block_tables=torch.tensor(tables, device=self._device),
            block_size=_BLOCK_SIZE,
        )
        return self._model.forward(self._tensor(token_ids), context, caches)

    def _tensor(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def _batches(prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield the indices of prompts of similar length."""
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    for start in range(0, len(order), _MAX_NUM_SEQS):
        yield order[start : start + _MAX_NUM_SEQS]
