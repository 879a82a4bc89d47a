"""Drafts are given where they are expected to pay, and nowhere else."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cpu.multi_step.draft_budget import plan


@dataclass(frozen=True)
class Cost:
    plain: float
    fixed: float
    each: float


@dataclass(frozen=True)
class DraftPlan:
    counts: list[int]
    gain: float


def plan_drafts(acceptance_rates: list[list[float]], num_rows: int, cost: Cost, *, min_gain: float = 1.05) -> DraftPlan:
    """Draft tokens for each row, and what they are expected to gain."""
    num_drafts = np.array([len(of_row) for of_row in acceptance_rates])
    table = np.zeros((len(acceptance_rates), max(1, *num_drafts)))
    for index, of_row in enumerate(acceptance_rates):
        table[index, : len(of_row)] = of_row
    counts = np.empty(len(acceptance_rates), dtype=np.int64)
    gain = plan(table, num_drafts, num_rows, _plain_s(cost, num_rows), cost.fixed, cost.each, min_gain, counts)
    return DraftPlan(counts.tolist(), gain)


def _plain_s(cost: Cost, num_rows: int) -> float:
    return cost.plain * (0.5 + 0.5 * num_rows)


def test_cheap_verification_of_likely_drafts_uses_all_of_them() -> None:
    assert plan_drafts([[0.95] * 6], 1, Cost(1.0, 0.0, 0.01)).counts == [6]


def test_unlikely_drafts_are_not_tried() -> None:
    assert plan_drafts([[0.05] * 6], 1, Cost(1.0, 0.1, 0.1)).counts == [0]


def test_fixed_cost_of_verifying_keeps_a_small_gain_away() -> None:
    assert plan_drafts([[0.5]], 1, Cost(1.0, 0.0, 0.1)).counts == [1]
    assert plan_drafts([[0.5]], 1, Cost(1.0, 0.4, 0.1)).counts == [0]


def test_rows_with_better_acceptance_get_more() -> None:
    few, many = plan_drafts([[0.3] * 8, [0.9] * 8], 2, Cost(1.0, 0.0, 0.15)).counts
    assert few < many


def test_a_row_gets_drafts_up_to_the_first_that_is_unlikely() -> None:
    assert plan_drafts([[0.95, 0.95, 0.01, 0.95]], 1, Cost(1.0, 0.0, 0.1)).counts == [2]


def test_the_gain_is_that_over_a_step_without_drafts() -> None:
    found = plan_drafts([[0.5]], 1, Cost(1.0, 0.1, 0.1))
    assert found.gain == pytest.approx(1.5 / 1.2)
    assert plan_drafts([[0.1]], 1, Cost(1.0, 0.1, 0.1)).gain == 1.0


rows = st.lists(st.lists(st.floats(0.01, 0.99), max_size=3), min_size=1, max_size=3)


@settings(max_examples=60)
@given(rows, st.floats(0.0, 0.5), st.floats(0.01, 0.6))
def test_no_other_choice_of_drafts_is_faster(acceptance_rates: list[list[float]], fixed: float, each: float) -> None:
    cost = Cost(1.0, fixed, each)
    num_rows = len(acceptance_rates)

    def rate(counts: tuple[int, ...]) -> float:
        tokens = num_rows + sum(
            sum(math.prod(row[:i]) for i in range(1, count + 1))
            for row, count in zip(acceptance_rates, counts, strict=True)
        )
        seconds = _plain_s(cost, num_rows) + (cost.fixed if any(counts) else 0.0) + cost.each * sum(counts)
        return tokens / seconds

    chosen = rate(tuple(plan_drafts(acceptance_rates, num_rows, cost, min_gain=1.0).counts))
    best = max(rate(counts) for counts in itertools.product(*(range(len(row) + 1) for row in acceptance_rates)))
    assert chosen >= best * (1 - 1e-9)
