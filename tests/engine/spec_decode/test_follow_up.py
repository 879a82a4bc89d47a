"""What rounds behind a step are told, and what is learnt from them."""

from __future__ import annotations

import pytest
import torch

from engine.models.multi_step import GuessTables, MultiStepOrder, MultiStepReport, StepTaken
from engine.protocol import Add, SamplingParams
from engine.spec_decode.follow_up import MultiStepPlanner
from engine.spec_decode.proposers.acceptance_stats import AcceptanceStats
from engine.spec_decode.proposers.ngram import LookupPosition, NgramProposer
from engine.step.drafting import DraftRequest
from engine.step.sequence import Sequence

COSTS = (1e-3, 1e-4, 5e-5)
"""Of a step: plain, more with drafts, more for each."""


class Ordered:
    """Rounds that remember what was ordered, and took as long as they are told to."""

    max_rows = 2

    def __init__(self) -> None:
        self.orders: list[MultiStepOrder] = []
        self.took: list[StepTaken] = []
        self.tables: GuessTables | None = None

    def begin(self, tables: GuessTables) -> None:
        """Remember the tables."""
        self.tables = tables

    def order(self, order: MultiStepOrder) -> None:
        """Remember it."""
        self.orders.append(order)

    def told(self) -> MultiStepReport | None:
        """Nothing: that is the runner's."""
        return None

    def rounds(self) -> list[StepTaken]:
        """What they took."""
        return self.took

    def states(self) -> torch.Tensor:
        """None: these are the runner's, too."""
        return torch.empty(0)


@pytest.fixture
def rounds() -> Ordered:
    return Ordered()


@pytest.fixture
def follow_up(rounds: Ordered) -> MultiStepPlanner:
    record = AcceptanceStats()
    return MultiStepPlanner(
        rounds, NgramProposer(record), record, num_speculative_tokens=4, few_tokens=3, length_margin=1.5
    )


def sequence(num_tokens: int, *, word: int = 5, stops: tuple[int, ...] = (2,)) -> Sequence:
    params = SamplingParams(max_tokens=50, temperature=0.0, stop_token_ids=stops)
    add = Add(seq_id=num_tokens, prompt_token_ids=[word] * num_tokens, params=params)
    return Sequence.from_add(add, arrival_index=0, received_at=0.0)


def test_rounds_behind_a_prompt_begin_without_guesses_and_know_where_texts_end(
    follow_up: MultiStepPlanner, rounds: Ordered
) -> None:
    requests = [DraftRequest(sequence(7, stops=(2, 3)), 4, max_tokens=20), DraftRequest(sequence(9), 4, max_tokens=12)]
    follow_up.order_behind_prompts(requests, [5.0, 30.0], COSTS, 0.25)
    (order,) = rounds.orders
    assert follow_up.is_ordered
    assert (order.lengths, order.ends_at, order.expected) == ([7, 9], [20, 12], [12, 39])
    assert order.stops.tolist() == [2, 3, 2]
    assert order.rows[:2, 1].tolist() == [7, 9]
    assert not order.found[2][:2].any()
    assert order.numbers[:2].tolist() == [[1.0, 0.25, 0.0]] * 2


def test_rounds_behind_drafts_are_told_the_steps_own_guesses(follow_up: MultiStepPlanner, rounds: Ordered) -> None:
    seq = sequence(9)
    found = NgramProposer(AcceptanceStats()).choose([LookupPosition(seq, 4, False)], 0.0, COSTS, 1.0)
    follow_up.order(found, [DraftRequest(seq, 4, max_tokens=20)], [5.0], COSTS)
    assert rounds.orders[0].found is found.arrays


def test_more_rows_than_rounds_are_made_for_are_not_followed(follow_up: MultiStepPlanner, rounds: Ordered) -> None:
    seqs = [sequence(count) for count in (4, 5, 6)]
    assert follow_up.suits(2, 1e-3)
    assert not follow_up.suits(3, 1e-3)
    found = NgramProposer(AcceptanceStats()).choose([LookupPosition(seq, 4, False) for seq in seqs], 0.0, COSTS, 1.0)
    follow_up.order(found, [DraftRequest(seq, 4, 20) for seq in seqs], [5.0] * 3, COSTS)
    assert rounds.orders == []
    assert not follow_up.is_ordered


def test_no_round_follows_where_a_step_takes_longer_than_anybody_should_wait(
    follow_up: MultiStepPlanner, rounds: Ordered
) -> None:
    request = DraftRequest(sequence(9), 4, max_tokens=40)
    follow_up.order_behind_prompts([request], [20.0], (0.030, 0.003, 0.001), 0.1)
    assert rounds.orders == []
    assert not follow_up.is_ordered
    assert not follow_up.suits(1, 0.030)
    assert not follow_up.suits(1, 0.0)  # not known yet


def test_what_a_round_without_drafts_takes_is_learnt_from_those_with_some_and_from_those_with_none(
    follow_up: MultiStepPlanner, rounds: Ordered
) -> None:
    request = DraftRequest(sequence(9), 4, max_tokens=40)
    for _ in range(60):
        follow_up.order_behind_prompts([request], [20.0], COSTS, 0.1)
        # Half of a step, and its drafts.
        with_drafts = [StepTaken(5e-4 + 1e-4 + count * 5e-5, count) for count in (4, 2)]
        rounds.took = [StepTaken(9e-3, 0), *with_drafts, StepTaken(5e-4, 0)]
        assert follow_up.take([(request.seq, [7, 8, 9, 7, 8, 9, 7, 8])], COSTS, 2e-4) == rounds.took
        assert not follow_up.is_ordered
    assert rounds.orders[0].costs[0] == 1e-3
    assert rounds.orders[-1].costs[0] == pytest.approx(5e-4, abs=1e-5)


def test_rounds_without_guesses_say_nothing_about_others(follow_up: MultiStepPlanner, rounds: Ordered) -> None:
    request = DraftRequest(sequence(9), 4, max_tokens=40)
    rounds.took = [StepTaken(9e-3, 0), StepTaken(1e-4, 0)]
    for _ in range(20):
        follow_up.order_plain([request], COSTS)
        assert follow_up.is_ordered
        assert len(follow_up.take([(request.seq, [7, 8])], COSTS, 2e-4)) == 2
    assert not any(order.guesses for order in rounds.orders)
    follow_up.order_behind_prompts([request], [20.0], COSTS, 0.1)
    assert rounds.orders[-1].guesses
    assert rounds.orders[-1].costs[0] == COSTS[0]


def test_prompts_behind_which_rounds_cost_more_than_they_save_are_left_alone(
    follow_up: MultiStepPlanner, rounds: Ordered
) -> None:
    allowed = []
    for number in range(200):
        seq = sequence(9, word=5 + number % 2)
        is_allowed = follow_up.allows_behind_prompts([seq])
        allowed.append((seq.token_ids[0], is_allowed))
        if is_allowed:
            follow_up.order_behind_prompts([DraftRequest(seq, 4, 40)], [20.0], COSTS, 0.1)
            is_known = seq.token_ids[0] == 6
            rounds.took = [StepTaken(9e-3, 0), StepTaken(8e-4, 4)] if is_known else []
            follow_up.take([(seq, [7, 8, 9, 7] if is_known else [7])], COSTS, 4e-4)
    assert sum(is_allowed for word, is_allowed in allowed[100:] if word == 5) <= 4
    assert all(is_allowed for word, is_allowed in allowed if word == 6)
