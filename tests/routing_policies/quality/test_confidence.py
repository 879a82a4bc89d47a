"""The estimate from a model's first tokens."""

from __future__ import annotations

import pytest

from routing_policies.quality.confidence import SIGNS, TokenOdds, signs_of
from tests.routing_policies.quality.test_predictor import trained


def test_surer_first_tokens_make_a_better_answer_likelier() -> None:
    checkpoint = trained().checkpoints[1]
    assert checkpoint.num_tokens == 2
    sure, unsure = (TokenOdds(-0.01, 3.0),) * 2, (TokenOdds(-2.5, 0.5),) * 2
    assert checkpoint.probability(0.0, sure, is_whole=False) > checkpoint.probability(0.0, unsure, is_whole=False) + 0.3


def test_the_signs_are_the_least_the_mean_and_the_first() -> None:
    odds = [TokenOdds(-0.5, 2.0), TokenOdds(-1.5, 0.25), TokenOdds(-0.1, 3.0)]
    signs = dict(zip(SIGNS, signs_of(0.7, odds, is_whole=True), strict=True))
    assert signs == pytest.approx(
        {
            "prior": 0.7,
            "least_logprob": -1.5,
            "mean_logprob": -0.7,
            "least_margin": 0.25,
            "first_logprob": -0.5,
            "is_whole": 1.0,
        }
    )


def test_one_impossible_token_does_not_outweigh_all_others() -> None:
    signs = dict(zip(SIGNS, signs_of(0.0, [TokenOdds(float("-inf"), 0.0)], is_whole=False), strict=True))
    assert signs["least_logprob"] == signs["mean_logprob"] == -20.0


def test_an_answer_without_a_token_counts_as_the_least_likely() -> None:
    assert signs_of(0.0, [], is_whole=True) == signs_of(0.0, [TokenOdds(-20.0, 0.0)], is_whole=True)
