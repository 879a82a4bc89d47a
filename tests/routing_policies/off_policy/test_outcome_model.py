"""What is expected of a candidate's answer to a kind of request, from few answers and from many."""

from __future__ import annotations

import pytest

from routing_policies.off_policy.outcome_model import OutcomeModel


def test_without_answers_everything_is_even() -> None:
    assert OutcomeModel().predict("small", (1,)) == 0.5


def test_a_kind_with_few_answers_is_drawn_towards_its_candidate() -> None:
    model = OutcomeModel()
    for number in range(400):
        model.learn("small", (0,), float(number % 4 == 0))
        model.learn("large", (0,), 1.0)
    model.learn("small", (1,), 1.0)
    assert model.predict("small", (0,)) == pytest.approx(0.25, abs=0.01)
    assert model.predict("large", (0,)) == pytest.approx(1.0, abs=0.02)
    assert 0.25 < model.predict("small", (1,)) < 0.45
    for _ in range(200):
        model.learn("small", (1,), 1.0)
    assert model.predict("small", (1,)) > 0.95
    assert model.predict("third", (1,)) == pytest.approx(0.75, abs=0.05)
