"""A predictor from its training to its verdicts: right where it has learned, silent where it has not, hard to fool."""

from __future__ import annotations

import random
from functools import cache

import msgspec
import numpy as np
import pytest

from gateway.routing.quality_files import bundled_models
from routing_policies.quality.model import PairModel
from routing_policies.quality.preamble import MIN_QUESTIONS
from routing_policies.quality.predictor import BadModel, Predictor, decode_model
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.training.pair_trainer import PairTrainer
from tests.routing_policies.quality.prompts import outcomes, prompt


@cache
def trained(seed: int = 1, num: int = 600) -> PairModel:
    return PairTrainer([outcome for _, outcome in outcomes(seed, num)]).fit(weak="s", strong="l", trained_on="test")


def probability(predictor: Predictor, text: str) -> float:
    return predictor.assess(Prompt(text, num_chars=len(text))).prediction.probability


def test_it_reports_what_the_small_model_can_do_from_what_it_cannot() -> None:
    predictor = Predictor(trained())
    assert probability(predictor, "Please add 17 and 45.") > 0.85
    assert probability(predictor, "Explain to a ship what a clock is for.") < 0.2


def test_its_probabilities_are_those_of_prompts_it_has_not_seen() -> None:
    predictor = Predictor(trained())
    held_out = outcomes(2, 800)
    probabilities = np.array([predictor.assess(requested).prediction.probability for requested, _ in held_out])
    good = np.array([outcome.good for _, outcome in held_out])
    assert abs(probabilities.mean() - good.mean()) < 0.03
    assert abs(probabilities[probabilities > 0.5].mean() - good[probabilities > 0.5].mean()) < 0.05


@pytest.mark.parametrize(
    ("name", "text", "is_known"),
    [
        ("neutral: like those it has learned from", "How much is 4 + 9?", True),
        ("another subject", "Translate Ovid's third elegy keeping its metre intact throughout", False),
        ("another alphabet", "Сколько будет два плюс два?", False),
        ("far longer than any", "What is 1 plus 2? " * 400, False),
        ("nothing at all", "", False),
    ],
)
def test_what_is_unlike_all_that_was_learned_is_reported_to_be_unknown(name: str, text: str, is_known: bool) -> None:
    found = Predictor(trained()).assess(Prompt(text, num_chars=len(text))).prediction
    assert found.is_known is is_known, name
    assert is_known or found.probability == 0.0


def test_a_fixed_preamble_is_taken_off_once_it_has_stood_before_different_questions() -> None:
    predictor, rng = Predictor(trained()), random.Random(3)
    attack = "Zzq wxv. As the greatest expert prove: "
    requested = [prompt(rng, is_hard=False) for _ in range(60)]
    honest = [predictor.assess(one).prediction.probability > 0.5 for one in requested]
    fooled = [
        predictor.assess(Prompt(attack + one.text, num_chars=99)).prediction.probability > 0.5 for one in requested
    ]
    assert sum(honest[20:]) - sum(fooled[20:]) <= 2
    assert sum(fooled) >= sum(honest) - 2 * MIN_QUESTIONS


def test_coefficients_survive_their_file_and_a_damaged_one_is_named() -> None:
    model = trained()
    content = msgspec.json.encode(model)
    assert decode_model(content, "m.json") == model
    for broken in (content[:-9], b"{}", b"\xff", content.replace(b'"format":4', b'"format":9')):
        with pytest.raises(BadModel, match=r"m\.json: .*train it again"):
            decode_model(broken, "m.json")


def test_the_bundled_pair_comes_with_coefficients() -> None:
    (model,) = bundled_models()
    predictor = Predictor(model)
    assert predictor.pair == ("penstock-small", "penstock-large")
    assert probability(predictor, "What is 7 plus 5?") > 0.9
    assert probability(predictor, "Which of Croatia or Hungary has the lowest shipping price?") < 0.3
    assert probability(predictor, "Prove that every bounded entire function is constant.") == 0.0
