"""A step while the scheduler puts it together."""

from __future__ import annotations

from engine.models.multi_step import MultiStepOrder
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.sequence import Sequence


class StepDraft:
    """Step under construction: its sequences so far and the tokens left."""

    def __init__(self, budget: int) -> None:
        self.chunks: dict[int, ScheduledChunk] = {}
        self.budget = budget
        self.predicts = False
        self.multi_step: MultiStepOrder | None = None
        self.has_preempted = False
        self.is_short_of_blocks = False
        """True if a sequence waits for want of blocks, not of room in the batch or of budget."""

    def add(self, chunk: ScheduledChunk) -> None:
        """Add a sequence's chunk."""
        self.chunks[chunk.seq.seq_id] = chunk
        self.budget -= chunk.num_query_tokens

    def drop(self, seq: Sequence) -> None:
        """Remove a sequence's chunk, if it has one."""
        chunk = self.chunks.pop(seq.seq_id, None)
        if chunk is not None:
            self.budget += chunk.num_query_tokens

    def output(self) -> SchedulerOutput:
        """Return the planned step for the runner."""
        return SchedulerOutput(list(self.chunks.values()), self.predicts, self.multi_step)

    def extend(self, chunk: ScheduledChunk, draft_token_ids: tuple[int, ...]) -> None:
        """Add draft tokens to a planned chunk."""
        self.chunks[chunk.seq.seq_id] = ScheduledChunk(
            chunk.seq, chunk.start, chunk.num_tokens, chunk.samples, draft_token_ids, chunk.is_stored
        )
        self.budget -= len(draft_token_ids)


def next_chunk(seq: Sequence, budget: int) -> ScheduledChunk:
    """Return the chunk that computes the next of a sequence's tokens, at most `budget` of them."""
    num_tokens = min(seq.num_uncomputed_tokens, budget, seq.max_chunk_tokens)
    start = seq.num_computed_tokens
    return ScheduledChunk(
        seq,
        start,
        num_tokens,
        samples=num_tokens == seq.num_uncomputed_tokens,
        is_stored=start < seq.num_shared_tokens,
    )
