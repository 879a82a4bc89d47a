"""Heads are called within the call that computes a step where they can be, and behind it otherwise."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import msgspec
import numpy as np
import pytest
import torch

from engine.cpu.multi_step.draft_records import DRAFT_END, DRAFT_ROW
from engine.models.multi_step import DraftTables, MultiStepOrder, MultiStepReport
from engine.models.prediction_heads import HeadPredictions, StepPredictions
from engine.protocol import Add, SamplingParams
from engine.spec_decode.proposers.medusa import MedusaProposer, shared_stops
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.sequence import Sequence
from engine.step.step_output import SequenceResult

END = 9
ORDER = MultiStepOrder(
    rows=np.zeros(2, DRAFT_ROW),
    stops=np.zeros(0),
    found=(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros(2, DRAFT_END)),
    lengths=[3, 3],
    ends_at=[9, 9],
    drafts_until=[9, 9],
    costs=(1.0, 0.1, 0.1, 1.0),
    max_steps=8,
    max_seconds=1.0,
)


class Heads:
    """One head that is sure of one token, whatever was stated."""

    num_heads = 1

    def __init__(self, token_id: int = 7) -> None:
        self._token_id = token_id
        self.calls: list[tuple[list[float], list[int]]] = []

    def predict_logits(self, hidden: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        """float32 [N, 1, 16]"""
        self.calls.append((hidden[:, 0].tolist(), token_ids.tolist()))
        logits = torch.zeros(hidden.shape[0], 1, 16)
        logits[:, :, self._token_id] = 20.0
        return logits


class Orders:
    """What steps were to follow."""

    max_num_seqs = 8

    def __init__(self) -> None:
        self.orders: list[MultiStepOrder] = []

    def begin(self, tables: DraftTables) -> None:
        """Nothing."""

    def order(self, order: MultiStepOrder) -> None:
        """Remember it."""
        self.orders.append(order)

    def report(self) -> MultiStepReport | None:
        """Nothing followed."""
        return None


class FusableHeads(Heads):
    """Heads that have predicted within the step."""

    def __init__(self, chosen: list[int]) -> None:
        super().__init__()
        predictions = HeadPredictions(np.array([[3]] * len(chosen)), np.array([[4]] * len(chosen)))
        self._seen: StepPredictions | None = StepPredictions(chosen, predictions)
        self.multi_step = Orders()
        self.arranged: list[tuple[int, tuple[int, ...], bool]] = []

    def arrange(self, num_seqs: int, stop_token_ids: SequenceOf[int], *, runs_heads: bool = True) -> bool:
        self.arranged.append((num_seqs, tuple(stop_token_ids), runs_heads))
        return num_seqs > 0

    def step_predictions(self) -> StepPredictions | None:
        return self._seen


def sequence(seq_id: int, *, stops: tuple[int, ...] = (END,), temperature: float = 0.0) -> Sequence:
    params = SamplingParams(max_tokens=50, temperature=temperature, stop_token_ids=stops)
    add = Add(seq_id=seq_id, prompt_token_ids=[1, 2, 3], params=params)
    return Sequence.from_add(add, arrival_index=0, received_at=0.0)


def chunks_of(*drafts: tuple[int, ...]) -> list[ScheduledChunk]:
    return [ScheduledChunk(sequence(n), 2, 1, samples=True, draft_token_ids=of_seq) for n, of_seq in enumerate(drafts)]


def test_heads_run_about_the_state_behind_each_row_s_accepted_draft_tokens() -> None:
    heads = Heads()
    chunks = chunks_of((4, 5), (), (6,))
    results = [SequenceResult([4, 8]), SequenceResult([5]), SequenceResult([6, 2])]
    hidden = torch.arange(6.0).unsqueeze(1)
    found = MedusaProposer(heads).predict(hidden, chunks, results)
    assert heads.calls == [([1.0, 3.0, 5.0], [8, 5, 2])]
    assert found is not None
    assert found.tokens.tolist() == [[7]] * 3


def test_rows_without_a_token_are_left_out() -> None:
    heads = Heads()
    found = MedusaProposer(heads).predict(
        torch.arange(3.0).unsqueeze(1),
        chunks_of((), (4,)),
        [SequenceResult([], error="no numbers"), SequenceResult([5])],
    )
    assert heads.calls == [([1.0], [5])]
    assert found is not None


def test_behind_the_end_of_all_answers_nothing_is_called() -> None:
    heads = Heads()
    assert MedusaProposer(heads).predict(torch.zeros(2, 4), chunks_of((), ()), [SequenceResult([END])] * 2) is None
    assert heads.calls == []


@pytest.mark.parametrize(("chosen", "expected"), [(5, 3), (6, 7)])
def test_what_was_seen_within_the_call_counts_if_the_step_chose_what_heads_ran_behind(
    chosen: int, expected: int
) -> None:
    found = MedusaProposer(FusableHeads([chosen, 5])).predict(
        torch.zeros(2, 4), chunks_of((), ()), [SequenceResult([5])] * 2
    )
    assert found is not None
    assert found.tokens.tolist() == [[expected], [expected]]


def test_heads_do_within_a_step_what_the_scheduler_put_out() -> None:
    heads = FusableHeads([5])
    proposer = MedusaProposer(heads)
    chunks = chunks_of((), ())
    proposer.prepare(SchedulerOutput(chunks))
    proposer.prepare(SchedulerOutput(chunks, predicts=True))
    proposer.prepare(SchedulerOutput(chunks, predicts=False, multi_step=ORDER))
    assert heads.arranged == [(0, (), True), (2, (END,), True), (2, (END,), False)]
    assert heads.multi_step.orders == [ORDER]
    other = [*chunks, ScheduledChunk(sequence(3, temperature=1.0), 2, 1, samples=True)]
    proposer.prepare(SchedulerOutput(other, predicts=True, multi_step=ORDER))
    assert heads.arranged[-1] == (0, (), True)
    assert len(heads.multi_step.orders) == 1


def test_compiled_code_chooses_where_all_rows_take_the_likeliest_token_and_end_alike() -> None:
    assert shared_stops([sequence(1), sequence(2)]) == (END,)
    assert shared_stops([sequence(1), sequence(2, temperature=1.0)]) is None
    assert shared_stops([sequence(1), sequence(2, stops=())]) is None
    penalised = sequence(3)
    penalised.params = msgspec.structs.replace(penalised.params, repetition_penalty=1.2)
    assert shared_stops([penalised]) is None
    assert shared_stops([]) is None
