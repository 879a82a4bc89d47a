"""Drafts that cost hardly more than reading them off: what prediction heads make of the step that was just computed."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.cpu.multi_step import argmax as likely
from engine.models.prediction_heads import Glances, MedusaHeads
from engine.sampling.greedy import is_greedy
from engine.spec_decode.proposers.draft_token import first_by_heads
from engine.step.hidden_states import Chosen, HiddenStates
from engine.step.sequence import Sequence


class HeadPredictions(NamedTuple):
    """What heads say of each row, int64 [rows, heads]."""

    tokens: npt.NDArray[Any]
    """-1 where they say nothing."""
    kinds: npt.NDArray[Any]


class MedusaProposer:
    """Asks the heads: at the end of a step whose next one will want drafts as far as can be told, while weights and
    threads are warm, and otherwise when drafts are wanted."""

    def __init__(self, heads: MedusaHeads, states: HiddenStates, clock: Callable[[], float]) -> None:
        likely.prepare()
        self._heads = heads
        self._glances = heads if isinstance(heads, Glances) else None
        self._states = states
        self._clock = clock
        states.on_kept = self._look
        self.is_promising: Callable[[Chosen], bool] | None = None
        """Tells whether the step that follows the choice of these tokens is likely to be asked about."""
        self.on_chosen: Callable[[Chosen], None] | None = None
        """Told of these tokens before that, while the step that chose them is still under way."""
        self.is_asleep = False
        """Whether nobody wants to know what comes behind the next step."""
        # Of all sequences of the last step: tokens, and kinds as if each were of the first one.
        self._found: HeadPredictions | None = None
        self._spent_s = 0.0

    def take_spent_s(self) -> float:
        """Seconds that went into looking ahead within the last step."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def rehearse(self, num_rows: int, hidden_size: int, dtype: torch.dtype, device: torch.device) -> None:
        """Look ahead of so many rows, of which nothing comes."""
        self._read(torch.ones(num_rows, hidden_size, dtype=dtype, device=device), [0] * num_rows)

    def say(self, seqs: SequenceOf[Sequence], are_near_end: SequenceOf[bool]) -> HeadPredictions | None:
        """What comes behind the newest token of each sequence; None where that is known of none.

        `are_near_end`: of which only a few tokens are expected yet.
        """
        are_all = self._states.are_of(seqs)
        rows = [] if are_all else self._states.rows_of(seqs)
        if not (are_all or rows):
            return None
        if self._found is None:
            self._found = self._read(self._states.of_chosen(), _newest(self._states.chosen()))
        first_kinds = [_first_kind(seq, is_near_end) for seq, is_near_end in zip(seqs, are_near_end, strict=True)]
        if are_all:
            return HeadPredictions(self._found.tokens, self._found.kinds + np.array(first_kinds)[:, None])
        indexes, order = zip(*rows, strict=True)
        tokens = np.full((len(seqs), self._heads.num_heads), -1)
        kinds = np.zeros_like(tokens)
        tokens[list(indexes)] = self._found.tokens[list(order)]
        kinds[list(indexes)] = self._found.kinds[list(order)]
        return HeadPredictions(tokens, kinds + np.array(first_kinds)[:, None])

    def says_end(
        self, seqs: SequenceOf[Sequence], are_near_end: SequenceOf[bool], chance: Callable[[int], float]
    ) -> bool:
        """Whether heads that were asked already say of every sequence that the next token ends it, and are more often
        right than not when they say so; `chance` tells how often a kind of guess is right."""
        found = self._found
        if found is None or not self._states.are_of(seqs):
            return False
        for row, (seq, is_near_end) in enumerate(zip(seqs, are_near_end, strict=True)):
            if int(found.tokens[row, 0]) not in seq.params.stop_token_ids:
                return False
            if chance(int(found.kinds[row, 0]) + _first_kind(seq, is_near_end)) < 0.5:
                return False
        return True

    def glance(self, seqs: SequenceOf[Sequence], *, asks_heads: bool = True) -> bool:
        """Look ahead in the same go as the next step, which is one of these rows; whether that is possible. Without
        heads, that step chooses its tokens itself, so that rounds may follow it."""
        if self._glances is None:
            return False
        stops = seqs[0].params.stop_token_ids
        for seq in seqs:
            if seq.grammar is not None or not is_greedy(seq.params) or seq.params.stop_token_ids != stops:
                return False
        return self._glances.glance(len(seqs), stops, asks_heads=asks_heads)

    def _look(self) -> None:
        """A step has just ended."""
        self._found = None
        seen = None if self._glances is None else self._glances.seen()
        if self.is_asleep:
            return
        chosen = self._states.chosen()
        if self.on_chosen is not None:
            self.on_chosen(chosen)
        if self.is_asleep:
            return
        if seen is not None and seen.chosen == _newest(chosen):
            self._found = HeadPredictions(seen.tokens, seen.kinds)
        elif self.is_promising is not None and self.is_promising(chosen):
            started_at = self._clock()
            self._found = self._read(self._states.of_chosen(), _newest(chosen))
            self._spent_s = self._clock() - started_at

    def _read(self, hidden: torch.Tensor, newest: list[int]) -> HeadPredictions:
        logits = self._heads.look_ahead(hidden, torch.tensor(newest, device=hidden.device)).cpu().numpy()
        found = HeadPredictions(*np.empty((2, *logits.shape[:2]), dtype=np.int64))
        likely.likeliest(logits, *found)
        return found


def _first_kind(seq: Sequence, is_near_end: bool) -> int:
    return first_by_heads(is_drawn=seq.params.temperature > 0.0, is_near_end=is_near_end)


def _newest(chosen: Chosen) -> list[int]:
    return [token_ids[-1] for _, token_ids in chosen]
