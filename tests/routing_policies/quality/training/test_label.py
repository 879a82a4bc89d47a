"""Labels: all that is learned from and nothing that can be read."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from routing_policies.quality.features import features_of
from routing_policies.quality.guard import END_WORDS
from routing_policies.quality.hashing import hashed_features
from routing_policies.quality.model import FORMAT
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.training.label import decode_label, encode_label, label_of
from tests.routing_policies.quality.labels import PAIR, labels

SECRET = "Why would the Hapsburg embassy in Ouagadougou wire 4711 francs to Rumpelstiltskin on Thursday?"


def test_a_label_states_all_that_is_learned_from_and_nothing_that_can_be_read() -> None:
    features = hashed_features(features_of(Prompt(SECRET, earlier="And the day before?", num_chars=130)))
    vector = np.random.default_rng(1).normal(size=384).astype(np.float32)
    vector /= np.linalg.norm(vector)
    label = label_of(features, PAIR, lost=1.0, source="audit", at=5.0, vector=vector, encoder="e")
    stored = encode_label(label)

    found = decode_label(stored)
    assert found == label
    assert found.features.words == features.words
    assert sorted(found.features.shapes[-END_WORDS:]) == sorted(features.shapes[-END_WORDS:])
    assert set(found.features.shapes) == set(features.shapes)
    assert np.allclose(found.features.numbers, features.numbers, atol=1e-5)
    assert found.embedding is not None
    assert float(found.embedding @ vector) > 0.999
    assert not any(word.encode() in stored.lower() for word in SECRET.lower().split() if len(word) > 3)
    assert len(stored) < 2000


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\x80", encode_label(msgspec.structs.replace(labels(1, 1)[0], format=0))]
)
def test_a_label_that_is_damaged_or_of_other_figures_is_none(data: bytes) -> None:
    assert decode_label(data) is None
    assert labels(1, 1)[0].format == FORMAT


def test_a_label_of_before_kinds_of_work_were_stored_has_none() -> None:
    (label,) = labels(1, 1)
    notified = {**msgspec.msgpack.decode(encode_label(msgspec.structs.replace(label, kind="sums")))}
    found = decode_label(msgspec.msgpack.encode({key: value for key, value in notified.items() if key != "kind"}))
    assert found == label
    assert found.outcome.category == ""
