"""Fitting a recognizer: typical prompts of each kind are recognized by a fit without them, and few kinds have none."""

from __future__ import annotations

import random

import numpy as np
import pytest

from routing_policies.quality.features import features_of
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.training.outcome import PairOutcome, outcome_of
from routing_policies.quality.training.pair_trainer import PairTrainer
from routing_policies.quality.training.recognizer_fitting import TYPICAL_RATIO, fitted_recognizer

TOPICS = {"metals": "iron copper zinc", "birds": "heron wren finch", "law": "court appeal statute"}
NUM = 80


def _texts(rng: random.Random) -> list[tuple[str, str]]:
    fill = ["about", "near", "with", "under", "small", "large", "early", "late"]
    return [
        (kind, " ".join([*rng.sample(words.split(), 2), *rng.sample(fill, 4)]) + "?")
        for kind, words in TOPICS.items()
        for _ in range(NUM)
    ]


def test_half_of_the_held_out_prompts_of_a_kind_are_typical_and_shift_to_its_mean() -> None:
    found = _texts(random.Random(1))
    kinds = np.array([kind for kind, _ in found])
    features = [features_of(Prompt(text, num_chars=len(text))) for _, text in found]
    good = np.where(kinds == "law", 0.0, 1.0)
    fitted = fitted_recognizer(features, kinds, good, np.zeros(len(kinds)), seed=1)
    assert fitted is not None
    recognizer, shifts = fitted
    assert recognizer.kinds == ("birds", "law", "metals")
    assert recognizer.shifts[1] < -2.0 < 2.0 < recognizer.shifts[0]
    for kind, sign in (("birds", 1.0), ("law", -1.0)):
        share = float(np.mean(np.sign(shifts[kinds == kind]) == sign))
        assert abs(share - TYPICAL_RATIO) < 0.2


def test_two_kinds_or_rare_ones_are_not_recognized() -> None:
    found = _texts(random.Random(1))[: 2 * NUM + 5]
    kinds = np.array([kind for kind, _ in found])
    features = [features_of(Prompt(text, num_chars=len(text))) for _, text in found]
    assert fitted_recognizer(features, kinds, np.ones(len(kinds)), np.zeros(len(kinds)), seed=1) is None


def test_a_kind_that_is_named_as_new_is_ordered_by_length() -> None:
    rng = random.Random(1)
    outcomes: list[PairOutcome] = []
    for kind, text in _texts(rng):
        ratio = {"metals": 0.9, "birds": 0.7, "law": 0.5}[kind]
        outcomes.append(outcome_of(Prompt(text, num_chars=len(text)), float(rng.random() < ratio), 1.0, category=kind))
    model = PairTrainer(outcomes).fit(weak="s", strong="l", trained_on="test")
    assert model.general is not None
    assert model.calibration_error is not None
    assert model.calibration_error < 0.1
    short, long = (
        features_of(Prompt(text, num_chars=len(text)))
        for text in ("iron copper about near?", "iron copper about near " * 9 + "?")
    )
    assert model.predict(short, kind="new").log_odds > model.predict(long, kind="new").log_odds


def test_a_fit_that_ends_before_it_converges_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routing_policies.quality.training.recognizer_fitting._MAX_STEPS", 1)
    found = _texts(random.Random(1))
    features = [features_of(Prompt(text, num_chars=len(text))) for _, text in found]
    kinds = np.array([kind for kind, _ in found])
    assert fitted_recognizer(features, kinds, np.ones(len(kinds)), np.zeros(len(kinds)), seed=1) is not None
