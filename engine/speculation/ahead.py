"""Drafts that cost hardly more than reading them off: what prediction heads make of the step that was just computed."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.compiled import likely
from engine.core.hidden_states import HiddenStates
from engine.core.sequence import Sequence
from engine.models.prediction_heads import LooksAhead
from engine.speculation.guess import first_by_heads


class Ahead(NamedTuple):
    """What heads say of each row, int64 [rows, heads]."""

    tokens: npt.NDArray[Any]
    """-1 where they say nothing."""
    kinds: npt.NDArray[Any]


class Outlook:
    """Asks the heads: at the end of a step whose like was asked about last time, while weights and threads are warm,
    and otherwise when drafts are wanted."""

    def __init__(self, heads: LooksAhead, states: HiddenStates, clock: Callable[[], float]) -> None:
        likely.prepare()
        self._heads = heads
        self._states = states
        self._clock = clock
        states.on_kept = self._look
        self._wanted: set[int] = set()
        # Of all sequences of the last step: tokens, and kinds as if each were of the first one.
        self._found: Ahead | None = None
        self._spent_s = 0.0

    def want(self, num_rows: int, *, is_wanted: bool) -> None:
        """Whether to look ahead at the end of steps of so many rows."""
        if is_wanted:
            self._wanted.add(num_rows)
        else:
            self._wanted.discard(num_rows)

    def take_spent_s(self) -> float:
        """Seconds that went into looking ahead within the last step."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def rehearse(self, num_rows: int, hidden_size: int, dtype: torch.dtype, device: torch.device) -> None:
        """Look ahead of so many rows, of which nothing comes."""
        self._read(torch.ones(num_rows, hidden_size, dtype=dtype, device=device), [0] * num_rows)

    def say(self, seqs: SequenceOf[Sequence], are_near_end: SequenceOf[bool]) -> Ahead | None:
        """What comes behind the newest token of each sequence; None where that is known of none.

        `are_near_end`: of which only a few tokens are expected yet.
        """
        rows = self._states.rows_of(seqs)
        if not rows:
            return None
        if self._found is None:
            self._found = self._read(self._states.of_chosen(), [token_id for _, token_id in self._states.chosen()])
        tokens = np.full((len(seqs), self._heads.num_heads), -1)
        kinds = np.zeros_like(tokens)
        for index, row in rows:
            tokens[index] = self._found.tokens[row]
            is_drawn = seqs[index].params.temperature > 0.0
            kinds[index] = self._found.kinds[row] + first_by_heads(is_drawn=is_drawn, is_near_end=are_near_end[index])
        return Ahead(tokens, kinds)

    def _look(self, num_rows: int) -> None:
        """A step has just ended."""
        self._found = None
        if num_rows not in self._wanted:
            return
        started_at = self._clock()
        chosen = self._states.chosen()
        if not all(token_id in seq.params.stop_token_ids for seq, token_id in chosen):
            self._found = self._read(self._states.of_chosen(), [token_id for _, token_id in chosen])
        self._spent_s = self._clock() - started_at

    def _read(self, hidden: torch.Tensor, newest: list[int]) -> Ahead:
        logits = self._heads.look_ahead(hidden, torch.tensor(newest, device=hidden.device)).cpu().numpy()
        found = Ahead(*np.empty((2, *logits.shape[:2]), dtype=np.int64))
        likely.likeliest(logits, *found)
        return found
