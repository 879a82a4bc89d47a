"""A small model that says what the large one would probably say next, over the large one's block tables."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch

from engine.attention.base import KVCache
from engine.core.batch import ScheduledRow
from engine.core.input_buffers import InputBuffers
from engine.core.sample_rows import SampleRows
from engine.core.sequence import Sequence
from engine.models.decoder import Model
from engine.sampling.sampler import Sampler


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
        return seq.num_tokens - self._num_read(seq)

    @torch.inference_mode()
    def draft(self, rows: SequenceOf[tuple[Sequence, int]]) -> list[tuple[int, ...]]:
        """Up to so many drafts for each row, fewer only where one ends the answer; its block table reaches as far.

        A round makes one draft for all rows.
        """
        drafts: list[list[int]] = [[] for _ in rows]
        step = self._catch_up([seq for seq, _ in rows])
        for number in range(max(count for _, count in rows)):
            going = [
                index
                for index, (seq, count) in enumerate(rows)
                if count > number == len(drafts[index]) and not _ends(seq, drafts[index])
            ]
            if not going:
                break
            if number:
                step = [_row_of_draft(rows[index][0], drafts[index]) for index in going]
            chosen = self._run(step, [drafts[index] for index in going])
            for index, token_id in zip(going, chosen, strict=True):
                drafts[index].append(token_id)
        for (seq, _), found in zip(rows, drafts, strict=True):
            self._note(seq, tuple(found[:-1]))
        return [tuple(found) for found in drafts]

    def _catch_up(self, seqs: list[Sequence]) -> list[ScheduledRow]:
        """Read what is missing but for the last part, which is returned: one row each, in all within the buffers."""
        room = max(1, self._max_tokens // len(seqs))
        last = []
        for seq in seqs:
            start = self._num_read(seq)
            while seq.num_tokens - start > room:
                size = min(self._max_tokens, seq.num_tokens - start - room)
                self._forward([ScheduledRow(seq, start, size, samples=False)])
                start += size
            last.append(ScheduledRow(seq, start, seq.num_tokens - start, samples=True))
        return last

    def _run(self, rows: list[ScheduledRow], drafts: list[list[int]]) -> list[int]:
        """One token for each row behind its drafts."""
        hidden, ends = self._forward(rows)
        logits = self._model.logits(hidden if len(ends) == hidden.shape[0] else hidden[ends])
        sample_rows = [
            self._sample_rows.of(row.seq, draft, first=len(draft))[0] for row, draft in zip(rows, drafts, strict=True)
        ]
        return self._sampler.sample(logits, sample_rows).token_ids

    def _forward(self, rows: list[ScheduledRow]) -> tuple[torch.Tensor, list[int]]:
        """Hidden states of a round, and where in them each row ends."""
        token_ids, context = next(self._buffers).fill(rows)
        hidden = self._model.forward(token_ids, context, self._caches)
        return hidden, [start - 1 for start in context.query_starts[1:]]

    def _num_read(self, seq: Sequence) -> int:
        """Leading tokens whose keys are in the pool; at least the last token is always read again."""
        progress = self._progress.get(seq)
        if progress is None or progress.num_preemptions != seq.num_preemptions:
            progress = self._progress[seq] = _Progress(seq.num_preemptions, self._num_shared(seq))
        num_read = progress.num_tokens
        said = seq.token_ids[num_read : num_read + len(progress.drafts)]
        for draft, token_id in zip(progress.drafts, said, strict=False):
            if draft != token_id:
                break
            num_read += 1
        return min(num_read, seq.num_tokens - 1)

    def _num_shared(self, seq: Sequence) -> int:
        """Tokens of leading blocks that it read for another sequence, or before a preemption."""
        num_blocks = 0
        for block_id, digest in zip(seq.block_table, seq.block_digests, strict=False):
            if self._written[block_id] != digest:
                break
            num_blocks += 1
        return num_blocks * self._block_size

    def _note(self, seq: Sequence, drafts: tuple[int, ...]) -> None:
        """Remember what the pool holds of a sequence now."""
        progress = self._progress[seq]
        # The block in which it went on reading, which may only now have become full.
        first, size = max(0, progress.num_tokens - 1) // self._block_size, self._block_size
        for index in range(first, -(-(seq.num_tokens + len(drafts)) // size)):
            is_full = (index + 1) * size <= seq.num_tokens and index < len(seq.block_digests)
            self._written[seq.block_table[index]] = seq.block_digests[index] if is_full else None
        progress.num_tokens, progress.drafts = seq.num_tokens, drafts


def _ends(seq: Sequence, drafts: list[int]) -> bool:
    """Whether the answer would be over with the last draft."""
    return bool(drafts) and drafts[-1] in seq.params.stop_token_ids


def _row_of_draft(seq: Sequence, drafts: list[int]) -> ScheduledRow:
    """The last draft, behind what was read before."""
    start = seq.num_tokens + len(drafts) - 1
    return ScheduledRow(seq, start, 0, samples=True, draft_token_ids=(drafts[-1],))
