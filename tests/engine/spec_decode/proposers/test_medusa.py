"""Heads that were asked while a step ended tell of an answer's end before anything is thought about drafts."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from engine.models.prediction_heads import Seen
from engine.protocol import Add, SamplingParams
from engine.spec_decode.proposers.medusa import MedusaProposer
from engine.step.batch import RowResult, ScheduledRow
from engine.step.hidden_states import HiddenStates
from engine.step.sequence import Sequence

END = 9


class Heads:
    """One head that is sure of one token, whatever was said."""

    num_heads = 1

    def __init__(self, token_id: int) -> None:
        self._token_id = token_id

    def look_ahead(self, hidden: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        """float32 [N, 1, 16]"""
        logits = torch.zeros(hidden.shape[0], 1, 16)
        logits[:, :, self._token_id] = 20.0
        return logits


def sequence(seq_id: int) -> Sequence:
    params = SamplingParams(max_tokens=50, temperature=0.0, stop_token_ids=(END,))
    add = Add(seq_id=seq_id, prompt_token_ids=[1, 2, 3], params=params)
    return Sequence.from_add(add, arrival_index=0, received_at=0.0)


def looked_ahead(seqs: list[Sequence], heads: int | Heads) -> MedusaProposer:
    """Of a step that just ended, in which each of these sequences said something."""
    states = HiddenStates()
    outlook = MedusaProposer(Heads(heads) if isinstance(heads, int) else heads, states, lambda: 0.0)
    outlook.is_promising = lambda chosen: True
    rows = [ScheduledRow(seq, seq.num_tokens - 1, 1, samples=True) for seq in seqs]
    states.keep(torch.zeros(len(seqs), 4), rows, [RowResult([5]) for _ in seqs])
    for seq in seqs:
        seq.token_ids.append(5)
    return outlook


@pytest.mark.parametrize(("chance", "expected"), [(0.9, True), (0.3, False)])
def test_the_end_that_heads_see_is_believed_when_they_are_more_often_right_than_not(
    chance: float, expected: bool
) -> None:
    seqs = [sequence(1), sequence(2)]
    assert looked_ahead(seqs, END).says_end(seqs, [True, True], lambda kind: chance) is expected


def test_answers_that_go_on_or_know_no_such_end_are_not_over() -> None:
    seq = sequence(1)
    assert not looked_ahead([seq], 5).says_end([seq], [True], lambda kind: 1.0)
    endless = replace(seq, params=msgspec.structs.replace(seq.params, stop_token_ids=()))
    assert not looked_ahead([endless], END).says_end([endless], [True], lambda kind: 1.0)


def test_of_other_rows_than_the_last_step_s_nothing_is_known() -> None:
    one, other = sequence(1), sequence(2)
    outlook = looked_ahead([one], END)
    assert not outlook.says_end([one, other], [True, True], lambda kind: 1.0)
    assert not outlook.says_end([other], [True], lambda kind: 1.0)
    assert outlook.says_end([one], [True], lambda kind: 1.0)


class GlancingHeads(Heads):
    """That looked behind a step already."""

    def __init__(self, chosen: list[int]) -> None:
        super().__init__(token_id=7)
        self._seen: Seen | None = Seen(chosen, np.array([[3]] * len(chosen)), np.array([[4]] * len(chosen)))
        self.glances: list[tuple[int, tuple[int, ...]]] = []

    def glance(self, num_rows: int, stop_token_ids: SequenceOf[int], *, asks_heads: bool = True) -> bool:
        self.glances.append((num_rows, tuple(stop_token_ids)))
        return True

    def seen(self) -> Seen | None:
        return self._seen


@pytest.mark.parametrize(("chosen", "expected"), [(5, 3), (6, 7)])
def test_what_was_seen_in_the_same_go_counts_if_the_step_chose_what_they_looked_behind(
    chosen: int, expected: int
) -> None:
    heads = GlancingHeads([chosen, 5])
    seqs = [sequence(1), sequence(2)]
    found = looked_ahead(seqs, heads).say(seqs, [False, False])
    assert found is not None
    assert found.tokens.tolist() == [[expected], [expected]]


def test_heads_glance_only_where_all_rows_take_the_likeliest_token_and_end_alike() -> None:
    heads = GlancingHeads([5])
    outlook = MedusaProposer(heads, HiddenStates(), lambda: 0.0)
    plain, other, drawn = sequence(1), sequence(2), sequence(3)
    assert outlook.glance([plain, other])
    assert heads.glances == [(2, (END,))]
    drawn.params = msgspec.structs.replace(drawn.params, temperature=1.0)
    other.params = msgspec.structs.replace(other.params, stop_token_ids=())
    assert not outlook.glance([plain, drawn])
    assert not outlook.glance([plain, other])
    assert not MedusaProposer(Heads(7), HiddenStates(), lambda: 0.0).glance([plain])
