"""A step while the scheduler puts it together."""

from __future__ import annotations

from engine.models.multi_step import MultiStepOrder
from engine.step.scheduler_output import ScheduledRow, SchedulerOutput
from engine.step.sequence import Sequence


class StepDraft:
    """Step under construction: its rows so far and the tokens left."""

    def __init__(self, budget: int) -> None:
        self.rows: dict[int, ScheduledRow] = {}
        self.budget = budget
        self.predicts = False
        self.multi_step: MultiStepOrder | None = None
        self.has_preempted = False
        self.is_short_of_blocks = False
        """True if a sequence waits for want of blocks, not of a row or of budget."""

    def add(self, row: ScheduledRow) -> None:
        """Take a row in."""
        self.rows[row.seq.seq_id] = row
        self.budget -= row.num_query_tokens

    def drop(self, seq: Sequence) -> None:
        """Take a sequence's row out again, if it has one."""
        row = self.rows.pop(seq.seq_id, None)
        if row is not None:
            self.budget += row.num_query_tokens

    def output(self) -> SchedulerOutput:
        """Return the planned step for the runner."""
        return SchedulerOutput(list(self.rows.values()), self.predicts, self.multi_step)

    def extend(self, row: ScheduledRow, draft_token_ids: tuple[int, ...]) -> None:
        """Add draft tokens to a planned row."""
        self.rows[row.seq.seq_id] = ScheduledRow(
            row.seq, row.start, row.num_tokens, row.samples, draft_token_ids, row.is_stored
        )
        self.budget -= len(draft_token_ids)


def next_chunk(seq: Sequence, budget: int) -> ScheduledRow:
    """Return the row that computes the next of a sequence's tokens, at most `budget` of them."""
    num_tokens = min(seq.num_uncomputed_tokens, budget)
    start = seq.num_computed_tokens
    return ScheduledRow(
        seq,
        start,
        num_tokens,
        samples=num_tokens == seq.num_uncomputed_tokens,
        is_stored=start < seq.num_shared_tokens,
    )
