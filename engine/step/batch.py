"""What one step computes, and what came out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.forecast.step_time import StepShape
from engine.protocol import TokenLogprobs
from engine.step.sequence import Sequence


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
    is_stored: bool = False
    """Whether its one token's key stands in the pool already, in a block that others read: what is computed anew of it
    is put behind the row, where the next token's will be."""

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

    @property
    def has_drafts(self) -> bool:
        """Whether any row verifies drafts."""
        return any(row.draft_token_ids for row in self.rows)

    def shape(self) -> StepShape:
        """What the step costs without its drafts, in the step-time model's terms."""
        num_decode_rows = num_prefill_tokens = num_context_tokens = num_pairs = num_chunks = 0
        for row in self.rows:
            if row.num_tokens == 1:
                num_decode_rows += 1
            else:
                num_prefill_tokens += row.num_tokens
                num_pairs += row.num_tokens * row.end
                num_chunks += 1
            num_context_tokens += row.end
        return StepShape(num_decode_rows, num_prefill_tokens, num_context_tokens, num_pairs, num_chunks)


@dataclass(frozen=True, slots=True)
class RowResult:
    """What one row made: nothing for a chunk in the middle, else the accepted drafts and the token after them."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    error: str | None = None
    """Set when this row alone could not be computed."""
    num_rounds: int = 1
    """Steps that these are of: the one that was scheduled and those that the model had follow it."""
    num_drafted: int = 0
    """Drafts that were verified in the latter."""
    later_s: float = 0.0
    """Seconds that these took."""

    @property
    def num_accepted(self) -> int:
        """Drafts that were right, of all of them: the other tokens were chosen behind them, one in each round."""
        return max(0, len(self.token_ids) - self.num_rounds)


class Runner(Protocol):
    """Computes batches."""

    def run(self, batch: ScheduledBatch) -> list[RowResult]:
        """One result a row, in order. May raise anything; running the same rows again must be harmless."""
        ...
