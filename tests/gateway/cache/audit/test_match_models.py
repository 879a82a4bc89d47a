"""The shipped match model, and what audits of a route make of it."""

from __future__ import annotations

from gateway.cache.audit.match_models import MatchModels
from tests.gateway.cache.audit.test_error_budget import sample


def test_the_shipped_model_names_the_encoder_that_it_was_calibrated_with() -> None:
    models = MatchModels.shipped()
    assert models.encoder_id
    assert 0.0 < models.first.threshold(0.05) <= models.first.threshold(0.01), "fewer errors take more certainty"


def test_a_route_whose_matches_are_often_wrong_is_believed_less() -> None:
    models = MatchModels.shipped()
    wrong = models.learn([sample(number, wrong=True) for number in range(60)])
    right = models.learn([sample(number, wrong=False) for number in range(60)])
    requested, stored = "How do I prune an olive tree?", "How can I prune an olive tree?"
    probabilities = [
        model.match_probability(requested, stored, similarity=0.97, runner_up=None, track=None)
        for model in (wrong, models.first, right)
    ]
    assert probabilities[0] < probabilities[1] <= probabilities[2]
