"""What the answers of late are expected to have used of the promise, and what follows."""

from __future__ import annotations

from random import Random

import pytest

from gateway.cache.audit.budget_usage import BEGINNING, SHARE, BudgetUsage

BOUND, FLOOR = 0.01, 0.8


def asked(spending: BudgetUsage, count: int, *, doubt: float = 0.0, name: str = "q") -> None:
    """So many requests, each answered by something similar with that doubt."""
    for number in range(count):
        spending.note_request()
        if doubt:
            spending.note_served(f"{name}{number}".encode(), b"kept", 1.0 - doubt)


def test_what_is_left_of_the_promise_decides_how_sure_an_answer_must_be() -> None:
    spending = BudgetUsage()
    floors = []
    for number in range(20):
        floors.append(spending.raised(FLOOR, BOUND))
        asked(spending, 100, doubt=0.03, name=f"{number}.")
    assert floors[0] == FLOOR
    assert floors == sorted(floors)
    assert floors[-1] == 1.0, "three per cent of doubt a request is more than one per cent may bear"


def test_a_floor_stays_while_the_promise_is_kept_and_falls_again_when_it_is() -> None:
    spending = BudgetUsage()
    asked(spending, 5000, doubt=SHARE * BOUND * 0.8)
    assert spending.raised(FLOOR, BOUND) == FLOOR
    asked(spending, 2000, doubt=0.05, name="doubtful")
    assert spending.raised(FLOOR, BOUND) > FLOOR
    asked(spending, 30_000)
    assert spending.raised(FLOOR, BOUND) == FLOOR


def test_the_expected_error_ends_below_the_bound_however_much_there_is_to_serve() -> None:
    rng, spending = Random(1), BudgetUsage()
    doubt = 0.0
    for number in range(30_000):
        spending.note_request()
        chance = rng.uniform(FLOOR, 1.0)
        if chance >= spending.raised(FLOOR, BOUND):
            spending.note_served(b"%d" % number, b"kept", chance)
            doubt += 1.0 - chance
    assert 0.5 * BOUND < doubt / 30_000 < BOUND


def test_the_first_answers_are_not_refused() -> None:
    spending = BudgetUsage()
    asked(spending, 20, doubt=0.2)
    assert spending.raised(FLOOR, BOUND) == FLOOR
    assert BEGINNING * SHARE * BOUND > 20 * 0.2


def test_what_serves_nothing_is_not_raised() -> None:
    assert BudgetUsage().raised(2.0, 0.0) == 2.0
    assert BudgetUsage().raised(1.0, BOUND) == pytest.approx(1.0)
