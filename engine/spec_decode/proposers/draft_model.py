"""A small model that says what the large one would probably say next, over the large one's block tables."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch

from engine.attention.base import KVCache
from engine.models.decoder import Model
from engine.sampling.sampler import Sampler
from engine.step.batch import ScheduledRow
from engine.step.input_buffers import InputBuffers
from engine.step.sample_rows import SampleRows
from engine.step.sequence import Sequence


class Drafted(NamedTuple):
    """What the model would say next."""

    token_id: int
    probability: float
    """Of the token before temperature, penalties and the like: how sure the model is."""


class Behind(NamedTuple):
    """A place to draft for: behind a sequence's tokens and some drafts."""

    seq: Sequence
    draft_token_ids: SequenceOf[int]


@dataclass(slots=True)
class _Progress:
    """What of a sequence the pool holds: `num_tokens` of its tokens, then the drafts that were fed behind them."""

    num_preemptions: int
    num_tokens: int = 0
    drafts: tuple[int, ...] = ()


class DraftModel:
    """Drafts with the sequence's own parameters and random numbers, so that it errs only where its logits do.

    Its KV pool has a slot for each of the large model's, found through the same block tables: what is freed there is
    free here, and nothing has to be allocated twice. It reads a sequence only when asked for drafts, from the first
    token whose slot does not hold it yet.
    """

    def __init__(
        self,
        model: Model,
        sampler: Sampler,
        caches: list[KVCache],
        *,
        sample_rows: SampleRows,
        device: torch.device,
        num_blocks: int,
        block_size: int,
        max_tokens: int,
        max_rows: int,
        max_blocks: int,
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._caches = caches
        self._sample_rows = sample_rows
        self._block_size = block_size
        self._max_tokens = max_tokens
        self._buffers = InputBuffers.alternating(max_tokens, max_rows, max_blocks, block_size, device)
        self._progress: WeakKeyDictionary[Sequence, _Progress] = WeakKeyDictionary()
        # Digest of the full block whose keys stand in each block's slots; None after anything else was written there.
        self._written: list[bytes | None] = [None] * num_blocks

    def num_missing_tokens(self, seq: Sequence) -> int:
        """Tokens of the sequence it has not read yet."""
        return max(0, seq.num_tokens - self._num_read(seq, ()))

    @torch.inference_mode()
    def draft(self, places: SequenceOf[Behind]) -> list[Drafted]:
        """One token for each place, whose sequence's block table reaches behind its drafts. One run for all."""
        rows = self._catch_up(places)
        token_ids, context = next(self._buffers).fill(rows)
        hidden = self._model.forward(token_ids, context, self._caches)
        for place in places:
            self._note(place)
        if hidden.shape[0] != len(rows):
            hidden = hidden[[start - 1 for start in context.query_starts[1:]]]
        logits = self._model.logits(hidden)
        sample_rows = [
            self._sample_rows.of(place.seq, place.draft_token_ids, first=len(place.draft_token_ids))[0]
            for place in places
        ]
        token_ids_chosen = self._sampler.sample(logits, sample_rows).token_ids
        chosen = torch.tensor(token_ids_chosen, device=logits.device).unsqueeze(1)
        probabilities = logits.softmax(-1).gather(1, chosen).flatten().tolist()
        return list(map(Drafted, token_ids_chosen, probabilities))

    def _catch_up(self, places: SequenceOf[Behind]) -> list[ScheduledRow]:
        """Read what is missing but for the last part, which is returned: one row each, in all within the buffers."""
        room = max(1, self._max_tokens // len(places))
        last = []
        for seq, draft_token_ids in places:
            start = self._num_read(seq, draft_token_ids)
            end = seq.num_tokens + len(draft_token_ids)
            while end - start > room and start < seq.num_tokens:
                size = min(self._max_tokens, end - start - room, seq.num_tokens - start)
                self._read(ScheduledRow(seq, start, size, samples=False))
                start += size
            num_known = max(0, seq.num_tokens - start)
            unread = tuple(draft_token_ids[max(0, start - seq.num_tokens) :])
            last.append(ScheduledRow(seq, start, num_known, samples=True, draft_token_ids=unread))
        return last

    def _read(self, row: ScheduledRow) -> None:
        token_ids, context = next(self._buffers).fill([row])
        self._model.forward(token_ids, context, self._caches)

    def _num_read(self, seq: Sequence, draft_token_ids: SequenceOf[int]) -> int:
        """Leading tokens, drafts included, whose keys are in the pool; at least the last one is always read again."""
        progress = self._progress.get(seq)
        if progress is None or progress.num_preemptions != seq.num_preemptions:
            progress = self._progress[seq] = _Progress(seq.num_preemptions, self._num_shared(seq))
        num_read = progress.num_tokens
        said = (*seq.token_ids[num_read : num_read + len(progress.drafts)], *draft_token_ids)
        for draft, token_id in zip(progress.drafts, said, strict=False):
            if draft != token_id:
                break
            num_read += 1
        return min(num_read, seq.num_tokens + len(draft_token_ids) - 1)

    def _num_shared(self, seq: Sequence) -> int:
        """Tokens of leading blocks that it read for another sequence, or before a preemption."""
        num_blocks = 0
        for block_id, digest in zip(seq.block_table, seq.block_digests, strict=False):
            if self._written[block_id] != digest:
                break
            num_blocks += 1
        return num_blocks * self._block_size

    def _note(self, place: Behind) -> None:
        """Remember what the pool holds of a sequence now."""
        seq, drafts = place
        progress = self._progress[seq]
        # The block in which it went on reading, which may only now have become full.
        first, size = max(0, progress.num_tokens - 1) // self._block_size, self._block_size
        for index in range(first, -(-(seq.num_tokens + len(drafts)) // size)):
            is_full = (index + 1) * size <= seq.num_tokens and index < len(seq.block_digests)
            self._written[seq.block_table[index]] = seq.block_digests[index] if is_full else None
        progress.num_tokens, progress.drafts = seq.num_tokens, tuple(drafts)
