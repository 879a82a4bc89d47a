"""What the steps behind a step are given, and what is learnt from them."""

from __future__ import annotations

import pytest

from engine.forecast.step_cost import StepCosts
from engine.models.multi_step import DraftTables, MultiStepOrder, MultiStepReport, StepTaken
from engine.protocol import Add, SamplingParams
from engine.spec_decode.multi_step import MIN_GAIN, MultiStepPlanner
from engine.spec_decode.proposers.acceptance_stats import AcceptanceStats
from engine.spec_decode.proposers.ngram import LookupPosition, NgramProposer
from engine.step.drafting import DraftRequest
from engine.step.sequence import Sequence


class Ordered:
    """A model of two sequences at most, which drafts only what it is given."""

    max_num_seqs = 2

    def __init__(self) -> None:
        self.tables: DraftTables | None = None

    def begin(self, tables: DraftTables) -> None:
        """Remember the tables."""
        self.tables = tables

    def order(self, order: MultiStepOrder) -> None:
        """Never: that is the runner's."""
        raise AssertionError

    def report(self) -> MultiStepReport | None:
        """Nothing was computed."""
        return None


def planner(plain_s: float = 1e-3) -> MultiStepPlanner:
    stats, costs = AcceptanceStats(), StepCosts()
    for num_seqs in (1, 2, 3):
        costs.observe_plain(num_seqs, plain_s)
    return MultiStepPlanner(Ordered(), NgramProposer(stats), stats, costs)


def sequence(num_tokens: int, *, stops: tuple[int, ...] = (2,), temperature: float = 0.0) -> Sequence:
    params = SamplingParams(max_tokens=50, temperature=temperature, stop_token_ids=stops)
    add = Add(seq_id=num_tokens, prompt_token_ids=[5] * num_tokens, params=params)
    return Sequence.from_add(add, arrival_index=0, received_at=0.0)


def test_steps_know_where_texts_begin_and_end_and_which_rows_are_drafted_for() -> None:
    requests = [DraftRequest(sequence(7, stops=(2, 3)), 4, max_tokens=20), DraftRequest(sequence(9), 4, max_tokens=12)]
    places = [LookupPosition(request.seq, 4) for request in requests]
    found = NgramProposer(AcceptanceStats()).nothing(places, 0.25)
    order = planner().order(requests, found, [20, 0], is_speculative=True)
    assert (order.lengths, order.ends_at, order.drafts_until) == ([7, 9], [20, 12], [20, 0])
    assert order.stops.tolist() == [2, 3, 2]
    assert order.rows[:, 1].tolist() == [7, 9]
    assert not order.found[2].any()
    assert order.numbers.tolist() == [[1.0, 0.25, 0.0]] * 2
    assert (order.costs[0], order.costs[3]) == (1e-3, MIN_GAIN)


def test_steps_behind_draft_tokens_are_reported_the_first_step_s_own() -> None:
    seq = sequence(9)
    found = NgramProposer(AcceptanceStats()).choose([LookupPosition(seq, 4)], 0.0, (1e-3, 1e-4, 5e-5), 1.0)
    order = planner().order([DraftRequest(seq, 4, max_tokens=20)], found, [20], is_speculative=True)
    assert order.found is found.arrays


@pytest.mark.parametrize(
    ("seqs", "plain_s", "expected"),
    [
        ([sequence(4), sequence(5)], 1e-3, True),
        ([sequence(4), sequence(5), sequence(6)], 1e-3, False),  # more sequences than the model can have
        ([sequence(4), sequence(5, stops=(3,))], 1e-3, False),
        ([sequence(4), sequence(5, temperature=0.5)], 1e-3, False),
        ([sequence(4)], 0.03, False),  # longer than anybody should wait
        ([sequence(4)], 0.0, False),  # not known yet
    ],
)
def test_steps_follow_where_the_model_can_choose_and_nobody_waits_long(
    seqs: list[Sequence], plain_s: float, expected: bool
) -> None:
    assert planner(plain_s).suits(seqs) is expected


def test_what_steps_take_is_learnt_from_those_with_draft_tokens_and_those_without() -> None:
    found = planner()
    for _ in range(40):
        found.observe(1, [StepTaken(5e-4 + 1e-4 + count * 5e-5, count) for count in (4, 2)])
        found.observe(1, [StepTaken(5e-4, 0)])
    assert found.costs.of_step(1) == pytest.approx((5e-4, 1e-4, 5e-5), rel=0.1)
