"""Fitting a pair's model: what embeddings, kinds of work and openings add, and what few labels leave out."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from routing_policies.quality.model import KindCorrection
from routing_policies.quality.predictor import decode_model
from routing_policies.quality.training.outcome import PairOutcome
from routing_policies.quality.training.pair_trainer import NUM_FOLDS, PairTrainer
from routing_policies.quality.training.recognizer_fitting import MIN_PROMPTS
from tests.routing_policies.quality.prompts import outcomes


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
    for kind in ("", "kind 0", "kind 7"):
        good_model, bad_model = (model.predict(features, vector, kind=kind).log_odds for vector in (good, bad))
        assert good_model > bad_model + 0.1, kind
    for vector in (None, good):
        easy, hard = (model.predict(features, vector, kind=kind).log_odds for kind in ("kind 7", "kind 0"))
        assert easy > hard
    assert decode_model(msgspec.json.encode(model), "m.json").predict(features, good) == model.predict(features, good)


def test_a_few_labels_with_embeddings_are_enough_to_fit() -> None:
    known, vectors = with_vectors(num=40)
    uncategorized = [msgspec.structs.replace(outcome, category="") for outcome in known]
    model = PairTrainer(uncategorized, vectors=vectors).fit(weak="s", strong="l", trained_on="test", encoder="e")
    assert (model.kinds, model.embedded_kinds) == (KindCorrection(), KindCorrection())
    assert 0.0 < model.predict(known[0].features, vectors[0], kind="kind 0").probability < 1.0


def test_a_beginning_that_a_few_of_very_many_prompts_have_protects_no_preamble() -> None:
    usual = [outcome for _, outcome in outcomes(1, 600)] * 9
    odd = [msgspec.structs.replace(outcome, opening="zzq wxv") for outcome in usual[:2]]
    model = PairTrainer([*usual, *odd]).fit(weak="s", strong="l", trained_on="test")
    assert "zzq wxv" not in model.openings
    assert "how much" in model.openings


def test_a_fit_is_the_same_every_time() -> None:
    learned = [outcome for _, outcome in outcomes(1, 120)]
    first, again = (PairTrainer(learned).fit(weak="s", strong="l", trained_on="test") for _ in range(2))
    assert msgspec.json.encode(first) == msgspec.json.encode(again)
    assert (first.weak, first.strong, first.trained_on, first.num_prompts) == ("s", "l", "test", 120)


def test_answers_without_token_odds_give_no_checkpoints() -> None:
    silent = [msgspec.structs.replace(outcome, odds=()) for _, outcome in outcomes(1, 120)]
    assert PairTrainer(silent).fit(weak="s", strong="l", trained_on="test").checkpoints == ()


def test_equal_prompts_are_held_out_together_with_and_without_openings() -> None:
    once = [outcome for _, outcome in outcomes(1, 60)]
    for known in (once, [msgspec.structs.replace(outcome, opening="") for outcome in once]):
        folds = PairTrainer(known * 3)._folds
        assert len(folds) == NUM_FOLDS
        for fold in folds:
            assert (fold.reshape(3, -1) == fold[: len(known)]).all()


def test_a_few_prompts_over_and_over_can_be_fitted() -> None:
    few = [outcome for _, outcome in outcomes(1, 3)] * 80
    mixed = [msgspec.structs.replace(outcome, lost=float(number % 2)) for number, outcome in enumerate(few)]
    model = PairTrainer(mixed).fit(weak="s", strong="l", trained_on="test")
    assert model.predict(mixed[0].features).probability == pytest.approx(0.5, abs=0.1)


def test_a_kind_of_a_few_prompts_counts_as_new() -> None:
    known, _ = with_vectors()
    rare = [msgspec.structs.replace(known[0], category="rare")] * (MIN_PROMPTS - 1)
    model = PairTrainer([*known, *rare]).fit(weak="s", strong="l", trained_on="test")
    assert set(model.kinds.offsets) == {f"kind {number}" for number in range(8)}
    assert model.general is not None
    assert model.predict(known[0].features, kind="rare") == model.predict(known[0].features, kind="new")
    lone = PairTrainer(rare).fit(weak="s", strong="l", trained_on="test")
    assert lone.kinds == KindCorrection()


def test_without_a_named_kind_the_probabilities_are_calibrated() -> None:
    known, _ = with_vectors(num=800)
    model = PairTrainer(known).fit(weak="s", strong="l", trained_on="test")
    assert model.general is not None
    assert model.unnamed_calibration_error is not None
    assert model.unnamed_calibration_error < 0.06
    good = float(np.mean([outcome.good for outcome in known]))
    predictions = [model.predict(outcome.features) for outcome in known]
    assert np.mean([found.probability for found in predictions]) == pytest.approx(good, abs=0.04)
