"""A step while the scheduler puts it together."""

from __future__ import annotations

from dataclasses import replace

from engine.core.batch import ScheduledRow
from engine.core.sequence import Sequence


class Plan:
    """A step being put together: rows so far and tokens left."""

    def __init__(self, budget: int) -> None:
        self.rows: dict[int, ScheduledRow] = {}
        self.budget = budget
        self.has_preempted = False

    def add(self, row: ScheduledRow) -> None:
        """Take a row in."""
        self.rows[row.seq.seq_id] = row
        self.budget -= row.num_query_tokens

    def drop(self, seq: Sequence) -> None:
        """Take a sequence's row out again, if it has one."""
        row = self.rows.pop(seq.seq_id, None)
        if row is not None:
            self.budget += row.num_query_tokens

    def extend(self, row: ScheduledRow, draft_token_ids: tuple[int, ...]) -> None:
        """Let a planned row verify drafts."""
        self.rows[row.seq.seq_id] = replace(row, draft_token_ids=draft_token_ids)
        self.budget -= len(draft_token_ids)
