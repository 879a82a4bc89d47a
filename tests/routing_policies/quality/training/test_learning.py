"""Labels without text, and what is learned from them in place."""

from __future__ import annotations

import random

import msgspec

from gateway.routing.quality_files import bundled_models
from routing_policies.quality.hashing import hashed_features, hashed_model
from routing_policies.quality.model import PairModel
from routing_policies.quality.predictor import Predictor
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.training.learning import (
    HELD_OUT,
    MIN_LABELS,
    LabelBuffer,
    learn_pair,
    learned_of,
    squared_error,
)
from routing_policies.quality.training.pair_trainer import PairTrainer
from tests.routing_policies.quality.labels import PAIR, labels
from tests.routing_policies.quality.prompts import outcomes


def trained(seed: int = 1, num: int = 600) -> PairModel:
    return PairTrainer([outcome for _, outcome in outcomes(seed, num)]).fit(
        weak=PAIR[0], strong=PAIR[1], trained_on="test"
    )


def test_a_buffer_keeps_the_latest_and_waits_for_enough_of_both_kinds() -> None:
    buffer = LabelBuffer(max_labels=MIN_LABELS)
    good = [label for label in labels(1, 400) if label.lost == 0.0][:MIN_LABELS]
    for number, label in enumerate(good):
        assert buffer.add(f"{number:04d}", label) == []
    assert not buffer.is_worth_learning  # there is nothing to distinguish
    (gone,) = buffer.add("9999", msgspec.structs.replace(good[0], lost=1.0))
    assert gone == "0000"
    buffer.remove(gone)
    assert buffer.is_worth_learning
    assert len(buffer.take()) == MIN_LABELS == len(buffer)
    assert not buffer.is_worth_learning  # nothing has come since
    buffer.add("9999", good[0])
    assert not buffer.is_worth_learning  # known already
    buffer.forget_before(good[-1].at + 1)
    assert len(buffer) == 0


def test_what_labels_report_better_than_the_model_is_learned_and_the_rest_is_stored() -> None:
    (base,) = bundled_models()
    learned = learn_pair(labels(3, 320), base)
    assert learned.hashes_words
    requested = labels(4, 200)
    assert squared_error(learned, requested) < 0.7 * squared_error(hashed_model(base), requested)
    assert learned.checkpoints == base.checkpoints
    assert set(base.openings) <= set(learned.openings)
    assert Predictor(learned).pair == Predictor(base).pair


def test_labels_of_a_route_that_reports_its_kind_of_work_change_what_is_predicted_there() -> None:
    rng = random.Random(4)
    kinds = [msgspec.structs.replace(label, kind=rng.choice(("usual", "hapless"))) for label in labels(5, 600)]
    known = [
        msgspec.structs.replace(label, lost=1.0) if label.kind == "hapless" and rng.random() < 0.5 else label
        for label in kinds
    ]
    learned = learned_of(known, trained())
    easy = Predictor(learned).assess(Prompt("Please add 17 and 45.", num_chars=21)).features
    features = hashed_features(easy)
    usual, hapless, untold, new = (
        learned.predict(features, kind=kind).probability for kind in ("usual", "hapless", "", "a new one")
    )
    assert usual > untold + 0.05
    assert hapless < untold - 0.05
    assert new == untold
    assert squared_error(learned, known) < squared_error(
        learned, [msgspec.structs.replace(one, kind="") for one in known]
    )


def test_a_model_that_knows_better_than_its_labels_is_stored() -> None:
    base = trained(num=3000)
    rng = random.Random(2)
    notified = [
        label if number % HELD_OUT == 0 else msgspec.structs.replace(label, lost=float(rng.random() < 0.5))
        for number, label in enumerate(labels(5, 240))
    ]
    assert learn_pair(notified, base) is base
    assert learn_pair([label for label in labels(5, 240) if label.lost == 0.0], base) is base


def test_an_embedding_is_learned_from_where_nearly_every_label_has_one() -> None:
    base = trained()
    with_vectors = labels(3, 300, encoder="e")
    learned = learned_of([*with_vectors, *labels(4, 20)], base)
    assert (learned.encoder, learned.num_prompts) == ("e", 300)
    assert Predictor(learned).encoder == "e"
    assert squared_error(learned, labels(5, 100, encoder="e")) < squared_error(learned, labels(5, 100))
    mixed = learned_of([*with_vectors, *labels(4, 200)], base)
    assert (mixed.encoder, mixed.embedded, mixed.num_prompts) == ("", None, 500)


def test_a_full_buffer_loses_the_oldest_labels_of_the_tenant_with_the_most() -> None:
    buffer = LabelBuffer(max_labels=4)
    (label,) = labels(1, 1)
    for number, tenant in enumerate(("calm", "flood", "flood", "flood")):
        buffer.add(f"{number:04d}", msgspec.structs.replace(label, tenant=tenant))
    assert buffer.add("0004", msgspec.structs.replace(label, tenant="flood")) == ["0001"]


def test_labels_of_repeated_requests_teach_no_more_than_their_outcomes_hold() -> None:
    rng = random.Random(5)
    once = [msgspec.structs.replace(label, lost=float(rng.random() < 0.4)) for label in labels(5, 60)]
    model = learned_of(once * 5, None)
    assert (
        squared_error(
            model, [msgspec.structs.replace(label, lost=float(rng.random() < 0.4)) for label in labels(6, 400)]
        )
        < 0.26
    )
