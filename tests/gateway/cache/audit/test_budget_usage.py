"""What the answers of late are expected to have used of the guarantee, and what follows."""

from __future__ import annotations

from random import Random

import pytest

from gateway.cache.audit.budget_usage import BEGINNING, SHARE, BudgetUsage

BOUND, THRESHOLD = 0.01, 0.8


def prompt(budget_usage: BudgetUsage, count: int, *, doubt: float = 0.0, name: str = "q") -> None:
    """So many requests, each answered by something similar with that doubt."""
    for number in range(count):
        budget_usage.note_request()
        if doubt:
            budget_usage.note_served(f"{name}{number}".encode(), b"kept", 1.0 - doubt)


def test_what_is_left_of_the_error_budget_decides_how_sure_an_answer_must_be() -> None:
    budget_usage = BudgetUsage()
    thresholds = []
    for number in range(20):
        thresholds.append(budget_usage.raised(THRESHOLD, BOUND))
        prompt(budget_usage, 100, doubt=0.03, name=f"{number}.")
    assert thresholds[0] == THRESHOLD
    assert thresholds == sorted(thresholds)
    assert thresholds[-1] == 1.0, "three per cent of doubt a request is more than one per cent may bear"


def test_a_threshold_stays_while_the_error_budget_is_held_and_falls_again_when_it_is() -> None:
    budget_usage = BudgetUsage()
    prompt(budget_usage, 5000, doubt=SHARE * BOUND * 0.8)
    assert budget_usage.raised(THRESHOLD, BOUND) == THRESHOLD
    prompt(budget_usage, 2000, doubt=0.05, name="doubtful")
    assert budget_usage.raised(THRESHOLD, BOUND) > THRESHOLD
    prompt(budget_usage, 30_000)
    assert budget_usage.raised(THRESHOLD, BOUND) == THRESHOLD


def test_the_expected_error_ends_below_the_bound_however_much_there_is_to_serve() -> None:
    rng, budget_usage = Random(1), BudgetUsage()
    doubt = 0.0
    for number in range(30_000):
        budget_usage.note_request()
        match_probability = rng.uniform(THRESHOLD, 1.0)
        if match_probability >= budget_usage.raised(THRESHOLD, BOUND):
            budget_usage.note_served(b"%d" % number, b"kept", match_probability)
            doubt += 1.0 - match_probability
    assert 0.5 * BOUND < doubt / 30_000 < BOUND


def test_the_first_answers_are_not_refused() -> None:
    budget_usage = BudgetUsage()
    prompt(budget_usage, 20, doubt=0.2)
    assert budget_usage.raised(THRESHOLD, BOUND) == THRESHOLD
    assert BEGINNING * SHARE * BOUND > 20 * 0.2


def test_what_serves_nothing_is_not_raised() -> None:
    assert BudgetUsage().raised(2.0, 0.0) == 2.0
    assert BudgetUsage().raised(1.0, BOUND) == pytest.approx(1.0)
