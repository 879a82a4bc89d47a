"""Models and features with hashes for words."""

from __future__ import annotations

import random

import msgspec
import pytest

from routing_policies.quality.features import features_of
from routing_policies.quality.hashing import HASH_BYTES, hash_of_word, hashed_features, hashed_model
from routing_policies.quality.predictor import Predictor, decode_model
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.training.pair_trainer import PairTrainer
from tests.routing_policies.quality.prompts import prompt
from tests.routing_policies.quality.test_predictor import trained
from tests.routing_policies.quality.training.test_pair_trainer import with_vectors


def test_what_a_hashed_model_states_of_a_kind_is_what_it_stated_before() -> None:
    known, vectors = with_vectors()
    model = PairTrainer(known, vectors=vectors).fit(weak="s", strong="l", trained_on="test", encoder="e")
    features = known[7].features
    for kind in ("", "kind 1", "a new one"):
        plain = model.predict(features, vectors[7], kind=kind)
        hashed = hashed_model(model).predict(hashed_features(features), vectors[7], kind=kind)
        assert hashed.log_odds == pytest.approx(plain.log_odds), kind


SECRET = "Why would the Hapsburg embassy in Ouagadougou wire 4711 francs to Rumpelstiltskin on Thursday?"


def test_a_model_of_hashes_predicts_what_the_model_of_words_does() -> None:
    model, rng = trained(), random.Random(3)
    plain, hashed = Predictor(model), Predictor(hashed_model(model))
    texts = [Prompt(text) for text in (SECRET, "", "Сколько будет?", "\ud800")]
    for requested in [*texts, *(prompt(rng, is_hard=number % 2 == 0) for number in range(60))]:
        by_words, by_hashes = plain.assess(requested).prediction, hashed.assess(requested).prediction
        assert by_words.log_odds == pytest.approx(by_hashes.log_odds)
        assert by_words.is_known is by_hashes.is_known
    assert hashed_model(hashed.model) is hashed.model
    assert decode_model(msgspec.json.encode(hashed.model), "m") == hashed.model


def test_a_hash_is_short_the_same_in_every_process_and_different_for_different_words() -> None:
    assert hash_of_word("penstock") == "1f0e1ef468"
    assert len({hash_of_word(f"word {number}") for number in range(5000)}) == 5000
    assert len(hash_of_word("\ud800")) == 2 * HASH_BYTES


def test_numbers_are_stored_and_words_are_replaced_in_their_order() -> None:
    features = features_of(Prompt("add 12 and add 7"))
    hashed = hashed_features(features)
    assert hashed.numbers == features.numbers
    assert hashed.shapes == [hash_of_word(shape) for shape in features.shapes]
    assert len(hashed.words) == len(features.words)
    assert not hashed.words & features.words
