"""Thresholds chosen from outcomes: fewest large calls for a loss, least loss for a share, held-out figures."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from routing_policies.quality.confidence import TokenOdds
from routing_policies.quality.model import Prediction
from routing_policies.quality.training.cascade_choice import (
    FIRST_TOKENS,
    CascadeCase,
    CascadeGoal,
    CascadeRule,
    case_of,
    choose_cascade,
)
from tests.routing_policies.quality.prompts import outcomes


def case(confidence: float, *, small: float, quality: float = 0.8, fold: int = 0) -> CascadeCase:
    return CascadeCase(quality=quality, confidences=(confidence,), whole=confidence, small=small, large=1.0, fold=fold)


def drawn(num: int, seed: int) -> list[CascadeCase]:
    """Cases whose confidences are the probabilities that the small model is right."""
    rng = random.Random(seed)
    found = []
    for number in range(num):
        confidence = rng.random()
        found.append(case(confidence, small=float(rng.random() < confidence), fold=number % 3))
    return found


def test_a_stated_loss_holds_for_prompts_outside_the_choice_with_the_fewest_large_calls() -> None:
    choice = choose_cascade(drawn(3000, 1), CascadeGoal(max_loss=0.1))
    # Sending all below t to the large model loses (1 - t)² / 2 of it: 0.1 for t = 0.553.
    assert choice.rule.min_quality == pytest.approx(0.553, abs=0.05)
    assert choice.loss_low <= 0.1 <= choice.loss_high
    assert choice.large_share == pytest.approx(0.553, abs=0.05)
    assert choice.random_loss > choice.loss + 0.05
    fresh = drawn(3000, 2)
    is_small = np.logical_not(choice.rule.large_calls(fresh))
    lost = np.mean([one.small < 1.0 for one in fresh] & is_small)
    assert choice.loss_low - 0.01 <= lost <= choice.loss_high + 0.01


def test_a_stated_share_of_large_calls_is_spent_where_it_helps_most() -> None:
    choice = choose_cascade(drawn(3000, 3), CascadeGoal(large_share=0.4))
    assert choice.large_share == pytest.approx(0.4, abs=0.03)
    assert choice.loss == pytest.approx(0.6**2 / 2, abs=0.03)


def test_no_loss_at_all_means_the_large_model_where_confidence_has_no_information() -> None:
    rng = random.Random(4)
    noise = [case(rng.random(), small=float(number % 2), fold=number % 3) for number in range(600)]
    choice = choose_cascade(noise, CascadeGoal(max_loss=0.0))
    assert choice.large_share > 0.97
    assert choice.loss < 0.02


def test_a_small_model_that_is_as_good_answers_everything() -> None:
    rng = random.Random(5)
    choice = choose_cascade(
        [case(rng.random(), small=1.0, fold=number % 3) for number in range(300)], CascadeGoal(max_loss=0.01)
    )
    assert (choice.large_share, choice.loss, choice.loss_high) == (0.0, 0.0, 0.0)


def test_hard_prompts_are_skipped_where_that_costs_nothing_and_unknown_ones_always() -> None:
    hard = [case(0.1, small=0.0, quality=0.2, fold=number % 3) for number in range(300)]
    good = [case(0.9, small=1.0, quality=0.9, fold=number % 3) for number in range(300)]
    choice = choose_cascade([*hard, *good], CascadeGoal(max_loss=0.01))
    assert choice.rule.skip_below == 0.5
    assert choice.large_share == 0.5
    for rule in (choice.rule, CascadeRule(min_quality=0.0, skip_below=0.05)):
        assert rule.large_calls([case(0.99, small=1.0, quality=0.0)]) == [True]


def test_a_case_knows_an_end_only_of_an_answer_that_ended() -> None:
    _, outcome = outcomes(1, 1)[0]
    whole, longer = (
        case_of(one, Prediction(1.0, is_known=True), (), scores=(1.0, 1.0), fold=0)
        for one in (outcome, msgspec.structs.replace(outcome, num_tokens=40))
    )
    assert whole.whole is not None
    assert longer.whole is None
    anything = CascadeRule(min_quality=0.0, skip_below=0.05)
    assert anything.large_calls([whole, longer]) == [False, True], "the tokens ended before the decision"
    long_odds = (TokenOdds(-0.01, 1.0),) * (FIRST_TOKENS + 6)
    known = case_of(
        msgspec.structs.replace(outcome, odds=long_odds, num_tokens=40),
        Prediction(1.0, is_known=True),
        (),
        scores=(1.0, 1.0),
        fold=0,
    )
    assert len(known.confidences) == FIRST_TOKENS
    assert CascadeRule(min_quality=0.9, skip_below=0.05).large_calls([known]) == [False]
