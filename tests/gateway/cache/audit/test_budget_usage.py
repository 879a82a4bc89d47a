"""The threshold that uses the error budget, and what hits have used of it."""

from __future__ import annotations

from random import Random

import pytest

from gateway.cache.audit.budget_usage import BEGINNING, MEMORY, BudgetUsage, usable_share

BOUND, THRESHOLD = 0.01, 0.8


def prompt(budget_usage: BudgetUsage, count: int, *, doubt: float = 0.0, name: str = "q") -> None:
    """So many requests, each answered by something similar with that doubt."""
    for number in range(count):
        budget_usage.note_request()
        if doubt:
            budget_usage.note_served(f"{name}{number}".encode(), b"kept", doubt)


def seen(budget_usage: BudgetUsage, count: int, rng: Random, lowest: float = 0.0) -> None:
    """So many requests, each with a neighbour of any probability from `lowest` on."""
    for _ in range(count):
        match_probability = rng.uniform(lowest, 1.0)
        budget_usage.note_request()
        budget_usage.note_lookup(match_probability, 1.0 - match_probability, is_given=False)


def test_the_threshold_is_the_lowest_whose_expected_errors_fit_the_budget() -> None:
    budget_usage = BudgetUsage()
    seen(budget_usage, MEMORY, Random(1))
    for bound in (0.005, 0.01, 0.05):
        threshold = budget_usage.threshold(bound)
        assert threshold is not None
        assert (1.0 - threshold) ** 2 / 2 == pytest.approx(bound * usable_share(bound), rel=0.15), (
            "the mean doubt above it"
        )
        assert budget_usage.hit_ratio(threshold) == pytest.approx(1.0 - threshold, rel=0.05)


def test_a_factor_moves_the_threshold_both_ways() -> None:
    budget_usage = BudgetUsage()
    seen(budget_usage, MEMORY, Random(1))
    thresholds = [budget_usage.threshold(BOUND, factor) or 0.0 for factor in (0.25, 1.0, 4.0)]
    assert thresholds == sorted(thresholds)
    assert len(set(thresholds)) == 3


def test_the_threshold_rises_where_more_lies_near_and_falls_again() -> None:
    budget_usage, rng = BudgetUsage(), Random(1)
    thresholds = []
    for lowest in (0.0, 0.9, 0.0):
        seen(budget_usage, 4 * MEMORY, rng, lowest)
        thresholds.append(budget_usage.threshold(BOUND) or 0.0)
    assert thresholds[1] > thresholds[0] == pytest.approx(thresholds[2], abs=0.02)


def test_before_there_is_traffic_the_threshold_is_unknown() -> None:
    budget_usage = BudgetUsage()
    assert budget_usage.hit_ratio(0.5) is None
    seen(budget_usage, BEGINNING - 1, Random(1))
    assert budget_usage.threshold(BOUND) is None
    seen(budget_usage, 1, Random(2))
    assert budget_usage.threshold(BOUND) is not None


def test_a_pair_that_was_served_before_counts_as_a_hit_and_adds_no_doubt() -> None:
    budget_usage = BudgetUsage()
    for _ in range(MEMORY):
        budget_usage.note_request()
        budget_usage.note_lookup(0.8, 0.2, is_given=True)
    assert budget_usage.threshold(BOUND) == 0.0
    assert budget_usage.hit_ratio(0.75) == pytest.approx(1.0)
    assert budget_usage.hit_ratio(2.0) == 0.0


def test_small_budgets_leave_a_larger_reserve() -> None:
    shares = [usable_share(bound) for bound in (0.005, 0.01, 0.02, 0.05)]
    assert shares == pytest.approx([0.72, 0.79, 0.85, 0.90], abs=0.01)
    rng, num_over = Random(2), 0
    for _ in range(200):
        num_wrong = sum(rng.random() < BOUND * usable_share(BOUND) for _ in range(MEMORY))
        num_over += num_wrong > BOUND * MEMORY
    assert num_over < 0.03 * 200


def test_hits_that_used_the_budget_raise_the_threshold_until_it_is_left_again() -> None:
    budget_usage = BudgetUsage()
    prompt(budget_usage, 5000, doubt=usable_share(BOUND) * BOUND * 0.9)
    assert budget_usage.raised(THRESHOLD, BOUND) == THRESHOLD
    prompt(budget_usage, 2000, doubt=0.05, name="doubtful")
    assert budget_usage.raised(THRESHOLD, BOUND) > THRESHOLD
    prompt(budget_usage, 30_000)
    assert budget_usage.raised(THRESHOLD, BOUND) == THRESHOLD


def test_the_first_answers_are_not_refused() -> None:
    budget_usage = BudgetUsage()
    prompt(budget_usage, 20, doubt=0.2)
    assert budget_usage.raised(THRESHOLD, BOUND) == THRESHOLD


def test_what_serves_nothing_is_not_raised() -> None:
    assert BudgetUsage().raised(2.0, 0.0) == 2.0
    assert BudgetUsage().raised(1.0, BOUND) == pytest.approx(1.0)


def test_a_restart_forgets_all_but_the_hits_of_the_last_requests() -> None:
    budget_usage = BudgetUsage()
    seen(budget_usage, MEMORY, Random(1))
    prompt(budget_usage, MEMORY, doubt=BOUND)
    budget_usage.restart()
    assert budget_usage.threshold(BOUND) is None
    assert budget_usage.raised(THRESHOLD, BOUND) == THRESHOLD
    prompt(budget_usage, 400, doubt=10 * BOUND, name="burst")
    budget_usage.restart()
    assert budget_usage.raised(THRESHOLD, BOUND) > THRESHOLD
