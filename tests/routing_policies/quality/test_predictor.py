"""A predictor from its training to its verdicts: right where it has learned, silent where it has not, hard to fool."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.routing.quality_files import bundled_models
from routing_policies.policy.document import CostPerMtok, Deployment
from routing_policies.quality.confidence import TokenOdds
from routing_policies.quality.hashing import WordHasher
from routing_policies.quality.model import KindCorrection, PairModel
from routing_policies.quality.pairs import pair_predictors_of, predicted_quality
from routing_policies.quality.preamble import MIN_OPENINGS, MIN_QUESTIONS, PreambleMemory
from routing_policies.quality.predictor import BadModel, Predictor, Predictors, decode_model
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.training.outcome import PairOutcome, outcome_of
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


def with_vectors(num: int = 400) -> tuple[list[PairOutcome], NDArray[np.float32]]:
    """Outcomes of eight kinds of work, and embeddings of which one axis shows what the features do not."""
    rng = np.random.default_rng(1)
    learned = [outcome for _, outcome in outcomes(1, num)]
    side = rng.normal(size=num)
    kinds = np.arange(num) % 8
    probabilities = 1 / (1 + np.exp(-2 * side - kinds / 2))
    known = [
        msgspec.structs.replace(outcome, lost=float(rng.random() > probability), category=f"kind {kind}")
        for outcome, probability, kind in zip(learned, probabilities, kinds, strict=True)
    ]
    vectors = rng.normal(size=(num, 16)) * 0.2
    vectors[:, 0] += 1.0
    vectors[:, 1] += side * 0.3
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return known, vectors.astype(np.float32)


def test_the_embedding_reports_what_words_do_not_and_a_reported_kind_of_work_more() -> None:
    known, vectors = with_vectors()
    model = PairTrainer(known, vectors=vectors).fit(weak="s", strong="l", trained_on="test", encoder="e")
    features = known[0].features
    by_side = vectors[np.argsort(vectors[:, 1])]
    bad, good = (part.mean(0) / np.linalg.norm(part.mean(0)) for part in (by_side[:80], by_side[-80:]))
    for kind in ("", "kind 0", "kind 7", "a new one"):
        good_model, bad_model = (model.predict(features, vector, kind=kind).log_odds for vector in (good, bad))
        assert good_model > bad_model + 0.1, kind
    for vector in (None, good):
        easy, untold, new, hard = (
            model.predict(features, vector, kind=kind).log_odds for kind in ("kind 7", "", "a new one", "kind 0")
        )
        assert easy > untold == new > hard
    assert decode_model(msgspec.json.encode(model), "m.json").predict(features, good) == model.predict(features, good)


def test_what_a_hashed_model_states_of_a_kind_is_what_it_stated_before() -> None:
    known, vectors = with_vectors()
    model = PairTrainer(known, vectors=vectors).fit(weak="s", strong="l", trained_on="test", encoder="e")
    hasher, features = WordHasher(), known[7].features
    for kind in ("", "kind 1", "a new one"):
        plain = model.predict(features, vectors[7], kind=kind)
        hashed = hasher.model(model).predict(hasher.features(features), vectors[7], kind=kind)
        assert hashed.log_odds == pytest.approx(plain.log_odds), kind


def test_a_few_labels_with_embeddings_are_enough_to_fit() -> None:
    known, vectors = with_vectors(num=40)
    untold = [msgspec.structs.replace(outcome, category="") for outcome in known]
    model = PairTrainer(untold, vectors=vectors).fit(weak="s", strong="l", trained_on="test", encoder="e")
    assert (model.kinds, model.embedded_kinds) == (KindCorrection(), KindCorrection())
    assert 0.0 < model.predict(known[0].features, vectors[0], kind="kind 0").probability < 1.0


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


def test_a_beginning_that_a_few_of_very_many_prompts_have_protects_no_preamble() -> None:
    usual = [outcome for _, outcome in outcomes(1, 600)] * 9
    odd = [msgspec.structs.replace(outcome, opening="zzq wxv") for outcome in usual[:2]]
    model = PairTrainer([*usual, *odd]).fit(weak="s", strong="l", trained_on="test")
    assert "zzq wxv" not in model.openings
    assert "how much" in model.openings


KNOWN = ["what is", "please add", "tell me", "how much", "why would", "explain to", "which of", "where can"]
KNOWN += ["who was", "name the", "count all", "sort these"]


def test_openings_that_were_learned_are_not_taken_for_a_preamble() -> None:
    memory = PreambleMemory(KNOWN)
    for number in range(50):
        text = f"What is the reason? Please add {number}"
        assert memory.strip(text) == text
    assert len(memory) == 1


def test_a_preamble_that_begins_as_training_did_is_taken_off() -> None:
    memory = PreambleMemory(KNOWN)
    for number in range(50):
        text = f"{KNOWN[number % 12]} number {number}"
        found = memory.strip(f"What is the proof? Think hard. {text}")
        assert (found == text) == (number >= MIN_OPENINGS - 1), number


def test_a_usual_beginning_with_many_ends_of_its_own_is_no_preamble() -> None:
    memory = PreambleMemory(KNOWN)
    for number in range(100):
        end = KNOWN[number // 5 % 12] if number % 5 == 0 else f"word{number} is"
        text = f"Tell me {end} here {number}"
        assert memory.strip(text) == text


def test_the_memory_of_preambles_is_bounded() -> None:
    memory = PreambleMemory(["what is"], max_entries=100)
    for number in range(500):
        memory.strip(f"noise{number} What is that?")
    assert len(memory) == 100


def test_surer_first_tokens_make_a_better_answer_likelier() -> None:
    checkpoint = trained().checkpoints[1]
    assert checkpoint.num_tokens == 2
    sure, unsure = (TokenOdds(-0.01, 3.0),) * 2, (TokenOdds(-2.5, 0.5),) * 2
    assert checkpoint.probability(0.0, sure, is_whole=False) > checkpoint.probability(0.0, unsure, is_whole=False) + 0.3


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


def test_scores_between_right_and_wrong_count_by_what_was_lost() -> None:
    requested = Prompt("a")
    assert outcome_of(requested, 0.25, 0.75).good == 0.5
    assert outcome_of(requested, 0.75, 0.25).good == 1.0
