"""What the last step left behind each sequence's newest token, for who looks ahead from there."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf

import torch

from engine.step.batch import RowResult, ScheduledRow
from engine.step.sequence import Sequence

Chosen = SequenceOf[tuple[Sequence, SequenceOf[int]]]
"""Sequences and the tokens that a step chose for each."""


class HiddenStates:
    """Final hidden states of the last step that sampled, until the next one. Keeping them costs next to nothing: what
    belongs to whom is worked out when somebody asks."""

    def __init__(self) -> None:
        self._hidden = torch.empty(0)
        self._rows: SequenceOf[ScheduledRow] = ()
        self._results: SequenceOf[RowResult] = ()
        # By sequence: where the state stands that its newest token was chosen from, and how long it is with that token.
        self._places: dict[int, tuple[int, int]] | None = {}
        self._has_drafts = True
        """Whether there are states of drafts, too."""
        self.on_kept: Callable[[], None] | None = None
        """Told when states were just kept, while all that computing them needed is still at hand."""

    def keep(self, hidden: torch.Tensor, rows: SequenceOf[ScheduledRow], results: SequenceOf[RowResult]) -> None:
        """Hidden states [N, hidden] of the sampled positions, row after row, and what came of them."""
        self._keep(hidden, rows, results, has_drafts=True)

    def keep_last(self, hidden: torch.Tensor, rows: SequenceOf[ScheduledRow], results: SequenceOf[RowResult]) -> None:
        """The same of hidden states [N, hidden] of the positions alone from which each row's last token was chosen."""
        self._keep(hidden, rows, results, has_drafts=False)

    def _keep(
        self,
        hidden: torch.Tensor,
        rows: SequenceOf[ScheduledRow],
        results: SequenceOf[RowResult],
        *,
        has_drafts: bool,
    ) -> None:
        self._hidden, self._rows, self._results, self._places = hidden, rows, results, None
        self._has_drafts = has_drafts
        if self.on_kept is not None:
            self.on_kept()

    def chosen(self) -> Chosen:
        """The sequences that the last step chose tokens for, and these."""
        return [
            (row.seq, result.token_ids)
            for row, result in zip(self._rows, self._results, strict=True)
            if result.token_ids
        ]

    def of_chosen(self) -> torch.Tensor:
        """The states [N, hidden] of all that `chosen` tells, in its order."""
        places = [place for place, _ in self._found().values()]
        if len(places) == 1:
            return self._hidden[places[0] : places[0] + 1]
        return self._hidden if len(places) == self._hidden.shape[0] else self._hidden[places]

    def are_of(self, seqs: SequenceOf[Sequence]) -> bool:
        """Whether these are the sequences that the last step chose tokens for, all of them, in order and since then
        unchanged."""
        if len(self._rows) != len(seqs):
            return False
        for row, result, seq in zip(self._rows, self._results, seqs, strict=True):
            if row.seq is not seq or not result.token_ids or row.end + len(result.token_ids) != seq.num_tokens:
                return False
        return True

    def rows_of(self, seqs: SequenceOf[Sequence]) -> list[tuple[int, int]]:
        """(index, row of `of_chosen`) of the sequences whose newest token the last step chose."""
        rows = {seq_id: (row, num_tokens) for row, (seq_id, (_, num_tokens)) in enumerate(self._found().items())}
        found = []
        for index, seq in enumerate(seqs):
            row, num_tokens = rows.get(seq.seq_id, (-1, -1))
            if num_tokens == seq.num_tokens:
                found.append((index, row))
        return found

    def _found(self) -> dict[int, tuple[int, int]]:
        if self._places is None:
            self._places = {}
            start = 0
            for row, result in zip(self._rows, self._results, strict=True):
                num_tokens = len(result.token_ids)
                if num_tokens:
                    place = start + num_tokens - 1 if self._has_drafts else start
                    self._places[row.seq.seq_id] = place, row.end + num_tokens
                start += 1 + len(row.draft_token_ids) if self._has_drafts else 1
        return self._places
