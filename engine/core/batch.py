"""What one step computes, and what came out of it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.sequence import Sequence
from engine.core.step_time import StepShape
from engine.messages import TokenLogprobs


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """One sequence's share of a step: tokens [start, start + num_tokens) of it, then its drafts."""

    seq: Sequence
    start: int
    num_tokens: int
    samples: bool
    """Whether the chunk ends at the sequence's last token, so that a next one is chosen."""
    draft_token_ids: tuple[int, ...] = ()
    """Speculative tokens to verify behind the known ones; each yields one more position to sample."""

    @property
    def end(self) -> int:
        """Known tokens computed once the step is done."""
        return self.start + self.num_tokens

    @property
    def num_query_tokens(self) -> int:
        """Positions the model computes for this row."""
        return self.num_tokens + len(self.draft_token_ids)


@dataclass(frozen=True, slots=True)
class ScheduledBatch:
    """Rows in batch order."""

    rows: list[ScheduledRow]

    def shape(self) -> StepShape:
        """What the step costs, in the step-time model's terms."""
        num_decode_rows = num_prefill_tokens = num_context_tokens = 0
        for row in self.rows:
            if row.num_query_tokens == 1:
                num_decode_rows += 1
            else:
                num_prefill_tokens += row.num_query_tokens
            num_context_tokens += row.end
        return StepShape(num_decode_rows, num_prefill_tokens, num_context_tokens)


@dataclass(frozen=True, slots=True)
class RowResult:
    """What one row made: nothing for a chunk in the middle, else the accepted drafts and the token after them."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    error: str | None = None
    """Set when this row alone could not be computed."""
