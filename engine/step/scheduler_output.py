"""One step as the scheduler orders it: chunks, their draft tokens, and the steps that may follow in the same call."""

from __future__ import annotations

from dataclasses import dataclass

from engine.forecast.step_time import StepShape
from engine.models.multi_step import MultiStepOrder
from engine.step.sequence import Sequence


@dataclass(frozen=True, slots=True)
class ScheduledChunk:
    """One sequence's share of a step: tokens [start, start + num_tokens) of it, then its draft tokens."""

    seq: Sequence
    start: int
    num_tokens: int
    samples: bool
    """True if the chunk ends at the sequence's last token, so that a next one is chosen."""
    draft_token_ids: tuple[int, ...] = ()
    """Draft tokens to verify behind the known ones; each yields one more position to sample."""
    is_stored: bool = False
    """True if the key of its one token is already in the pool, in a block that other sequences read.

    The recomputed key goes behind the chunk, into the slot of the next token.
    """

    @property
    def end(self) -> int:
        """Known tokens computed once the step is done."""
        return self.start + self.num_tokens

    @property
    def num_query_tokens(self) -> int:
        """Positions the model computes for this chunk."""
        return self.num_tokens + len(self.draft_token_ids)


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """One step: its sequences in batch order, and the work that follows before the scheduler runs again."""

    chunks: list[ScheduledChunk]
    predicts: bool = False
    """True if prediction heads run behind the tokens that the step chooses."""
    multi_step: MultiStepOrder | None = None
    """Further steps of the same sequences; None if the scheduler runs next."""

    @property
    def has_drafts(self) -> bool:
        """True if any sequence verifies draft tokens."""
        return any(chunk.draft_token_ids for chunk in self.chunks)

    @property
    def has_adapters(self) -> bool:
        """True if any sequence uses an adapter."""
        return any(chunk.seq.adapter is not None for chunk in self.chunks)

    @property
    def num_steps(self) -> int:
        """Maximum number of steps that one call computes."""
        return 1 if self.multi_step is None else self.multi_step.max_steps

    def shape(self) -> StepShape:
        """Return the shape of the first step, without its draft tokens, for the step-time model."""
        num_decode_seqs = num_prefill_tokens = num_context_tokens = num_pairs = num_chunks = 0
        for chunk in self.chunks:
            if chunk.num_tokens == 1:
                num_decode_seqs += 1
            else:
                num_prefill_tokens += chunk.num_tokens
                num_pairs += chunk.num_tokens * chunk.end
                num_chunks += 1
            num_context_tokens += chunk.end
        return StepShape(num_decode_seqs, num_prefill_tokens, num_context_tokens, num_pairs, num_chunks)
