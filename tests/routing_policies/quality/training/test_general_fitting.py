"""The general fit: differences between kinds teach nothing, and length counts before there is any evidence."""

from __future__ import annotations

import numpy as np

from routing_policies.quality.features import LENGTH, Features
from routing_policies.quality.training.general_fitting import NUM_GENERAL, fitted_general
from tests.routing_policies.quality.test_head import features

NUM = 400


def _prompts(rng: np.random.Generator) -> list[Features]:
    plain = features("word")
    found = []
    for _ in range(NUM):
        numbers = list(plain.numbers)
        numbers[LENGTH], numbers[0] = float(rng.random()), float(rng.random())
        found.append(plain._replace(numbers=numbers))
    return found


def test_longer_prompts_need_the_stronger_model_where_nothing_is_known() -> None:
    rng = np.random.default_rng(1)
    good = (rng.random(NUM) < 0.7).astype(np.float64)
    head = fitted_general(_prompts(rng), good, np.ones(NUM), np.full(NUM, "all"))
    assert len(head.weights) == NUM_GENERAL
    assert head.weights[LENGTH] == min(head.weights) < 0.0


def test_what_differs_between_kinds_alone_is_not_learned() -> None:
    rng = np.random.default_rng(2)
    prompts = _prompts(rng)
    for number, one in enumerate(prompts):
        one.numbers[0] = float(number % 2)
    kinds = np.array(["even", "odd"])[np.arange(NUM) % 2]
    between = np.where(kinds == "odd", 1.0, 0.0)
    assert abs(fitted_general(prompts, between, np.ones(NUM), kinds).weights[0]) < 1e-6
    assert fitted_general(prompts, between, np.ones(NUM), np.full(NUM, "all")).weights[0] > 0.1
