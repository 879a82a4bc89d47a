"""Which of a route's candidates are compared, and with which."""

from __future__ import annotations

from typing import Any

from routing_policies.policy.deployment import CostPerMtok, Deployment
from routing_policies.quality.pairs import pair_predictors_of, predicted_quality, strongest_of, weak_and_strong
from routing_policies.quality.predictor import Predictors
from routing_policies.quality.prompt import Prompt
from tests.routing_policies.quality.test_predictor import trained


def deployment(name: str, model: str, price: float, **known: Any) -> Deployment:
    rates = CostPerMtok(prompt=price, completion=price)
    return Deployment(id=name, url="unix:/x.sock", model=model, cost_per_mtok=rates, **known)


def test_each_candidate_is_compared_with_the_one_the_policy_calls_best() -> None:
    predictors = Predictors([trained()])
    small, large = deployment("small", "s", 1.0), deployment("large", "l", 9.0, quality=0.9)
    assert (
        pair_predictors_of([small, large], predictors) == ()
    )  # small is the best by the policy: there is nothing to compare
    pair_predictors = pair_predictors_of([small, deployment("large", "l", 9.0)], predictors)
    assert [assess.deployment for assess in pair_predictors] == ["small"]
    assert pair_predictors_of([small], predictors) == ()
    assert pair_predictors_of([small, large], Predictors()) == ()
    verdict = predicted_quality(pair_predictors, Prompt("Please add 17 and 45.", num_chars=21))
    assert verdict.is_known
    assert verdict.quality["small"] > 0.85


def test_of_equal_qualities_the_dearer_is_the_stronger_and_of_equal_prices_the_later() -> None:
    cheap, dear, other = deployment("a", "s", 1.0), deployment("b", "l", 9.0), deployment("c", "m", 9.0)
    assert strongest_of([dear, cheap]).id == "b"
    assert strongest_of([cheap, dear, other]).id == "c"
    assert strongest_of([deployment("d", "x", 0.1, quality=1.0), deployment("e", "y", 99.0, quality=0.9)]).id == "d"


def test_two_deployments_of_different_models_are_a_weak_and_a_strong_one() -> None:
    cheap, dear = deployment("a", "s", 1.0), deployment("b", "l", 9.0)
    assert weak_and_strong([dear, cheap]) == (cheap, dear)
    assert weak_and_strong([cheap]) is None
    assert weak_and_strong([cheap, dear, dear]) is None
    assert weak_and_strong([cheap, deployment("b", "s", 9.0)]) is None


def test_a_prediction_counts_in_proportion_to_the_stronger_ones_quality() -> None:
    small, large = deployment("a", "s", 1.0, quality=0.1), deployment("b", "l", 9.0, quality=0.5)
    requested = Prompt("Please add 17 and 45.", num_chars=21)
    (assess,) = pair_predictors_of([small, large], Predictors([trained()]))
    found = predicted_quality([assess], requested)
    assert found.quality["a"] == found.assessed[0][1].prediction.probability * 0.5


def test_one_unknown_prediction_makes_the_whole_unknown() -> None:
    (assess,) = pair_predictors_of([deployment("a", "s", 1.0), deployment("b", "l", 9.0)], Predictors([trained()]))
    found = predicted_quality([assess], Prompt("Сколько будет два плюс два?"))
    assert (found.is_known, found.quality) == (False, {"a": 0.0})
    assert predicted_quality([], Prompt("x")).is_known
