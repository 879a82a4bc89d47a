"""Draft tokens of a small model, which reads what the large one reads through the same block tables."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.sequence import INT64, Sequence
from engine.step.step_output import Runner

logger = logging.getLogger(__name__)


class Behind(NamedTuple):
    """A place to draft for: behind a sequence's tokens and some draft tokens."""

    seq: Sequence
    draft_token_ids: SequenceOf[int]


@dataclass(slots=True)
class _Progress:
    """Content of the draft model's pool for a sequence: `num_tokens` of its tokens, then draft tokens behind them."""

    num_preemptions: int
    num_tokens: int = 0
    drafts: tuple[int, ...] = ()


class DraftModelProposer:
    """Proposer that samples a draft model with the sequence's own parameters and random numbers.

    So its tokens differ from the large model's only where the logits do. The runner's KV pool has a slot for each of
    the large model's, found through the same block tables. What is freed there is free here, and nothing is allocated
    twice. A sequence is read only when it needs draft tokens, from the first token whose slot is not yet filled.
    """

    def __init__(self, runner: Runner, *, num_blocks: int, block_size: int, max_tokens: int, reach: int) -> None:
        """Draft by a runner of steps of at most `max_tokens`; `reach`: the most tokens it can read of one sequence."""
        self._runner = runner
        self._block_size = block_size
        self._max_tokens = max_tokens
        self._reach = reach
        self._progress: WeakKeyDictionary[Sequence, _Progress] = WeakKeyDictionary()
        # Digest of the full block whose keys stand in each block's slots; None after anything else was written there.
        self._written: list[bytes | None] = [None] * num_blocks
        self.is_broken = False
        """True if the model failed; it does not run again."""

    def has_room(self, seq: Sequence, limit: int) -> bool:
        """Return whether the model can read `limit` tokens behind a sequence."""
        return not self.is_broken and 0 < limit <= self._reach - seq.num_tokens

    def num_missing_tokens(self, seq: Sequence) -> int:
        """Return the number of tokens of the sequence that the model has not read yet."""
        return max(0, seq.num_tokens - self._num_read(seq, ()))

    def propose(self, seqs: SequenceOf[Sequence], counts: SequenceOf[int]) -> list[tuple[int, ...]]:
        """Return the requested number of draft tokens for each sequence.

        There are fewer where one ends the answer, and none when the model fails.
        """
        found: list[list[int]] = [[] for _ in seqs]
        while True:
            continuing = [
                index for index, drafts in enumerate(found) if self._continues(seqs[index], drafts, counts[index])
            ]
            if not continuing:
                return [_without_end(seq, drafts) for seq, drafts in zip(seqs, found, strict=True)]
            try:
                chosen = self.draft([Behind(seqs[index], found[index]) for index in continuing])
            # Whatever a draft model raises, the large model goes on without it.
            except Exception:
                logger.exception("the draft model failed and is not used again")
                self.is_broken = True
                return [()] * len(seqs)
            for index, token_id in zip(continuing, chosen, strict=True):
                found[index].append(token_id)

    def draft(self, places: SequenceOf[Behind]) -> list[int]:
        """Return one token for each place, whose sequence's block table reaches behind its drafts. One run for all."""
        chunks = self._catch_up(places)
        results = self._runner.execute(SchedulerOutput(chunks)).results
        for place in places:
            self._note(place)
        for result in results:
            if result.error is not None:
                raise RuntimeError(result.error)
        return [result.token_ids[0] for result in results]

    @staticmethod
    def _continues(seq: Sequence, drafts: list[int], count: int) -> bool:
        return len(drafts) < count and not (drafts and drafts[-1] in seq.params.stop_token_ids)

    def _catch_up(self, places: SequenceOf[Behind]) -> list[ScheduledChunk]:
        """Read the missing tokens except for the last part; return that part, one sequence each, within the budget."""
        room = max(1, self._max_tokens // len(places))
        last = []
        for seq, draft_token_ids in places:
            start = self._num_read(seq, draft_token_ids)
            # Draft tokens count as output here; the grammar only follows real output and checks them at verification.
            extended = replace(seq, token_ids=seq.token_ids + array(INT64, draft_token_ids), grammar=None)
            while extended.num_tokens - start > room:
                size = min(self._max_tokens, extended.num_tokens - start - room)
                self._runner.execute(SchedulerOutput([ScheduledChunk(extended, start, size, samples=False)]))
                start += size
            last.append(ScheduledChunk(extended, start, extended.num_tokens - start, samples=True))
        return last

    def _num_read(self, seq: Sequence, draft_token_ids: SequenceOf[int]) -> int:
        """Return leading tokens, drafts included, whose keys are in the pool; the last one is always read again."""
        progress = self._progress.get(seq)
        if progress is None or progress.num_preemptions != seq.num_preemptions:
            progress = self._progress[seq] = _Progress(seq.num_preemptions, self._num_shared(seq))
        num_read = progress.num_tokens
        extended = (*seq.token_ids[num_read : num_read + len(progress.drafts)], *draft_token_ids)
        for draft, token_id in zip(progress.drafts, extended, strict=False):
            if draft != token_id:
                break
            num_read += 1
        return min(num_read, seq.num_tokens + len(draft_token_ids) - 1)

    def _num_shared(self, seq: Sequence) -> int:
        """Return the tokens of leading blocks that it read for another sequence, or before a preemption."""
        num_blocks = 0
        for block_id, digest in zip(seq.block_table, seq.block_digests, strict=False):
            if self._written[block_id] != digest:
                break
            num_blocks += 1
        return num_blocks * self._block_size

    def _note(self, place: Behind) -> None:
        """Record the pool's present content for a sequence."""
        seq, drafts = place
        progress = self._progress[seq]
        # The block in which it went on reading, which may only now have become full.
        first, size = max(0, progress.num_tokens - 1) // self._block_size, self._block_size
        for index in range(first, -(-(seq.num_tokens + len(drafts)) // size)):
            is_full = (index + 1) * size <= seq.num_tokens and index < len(seq.block_digests)
            self._written[seq.block_table[index]] = seq.block_digests[index] if is_full else None
        progress.num_tokens, progress.drafts = seq.num_tokens, tuple(drafts)


def _without_end(seq: Sequence, drafts: list[int]) -> tuple[int, ...]:
    """Return draft tokens without one that ends the answer: the token behind the others is sampled anyway."""
    is_end = bool(drafts) and drafts[-1] in seq.params.stop_token_ids
    return tuple(drafts[:-1] if is_end else drafts)
