"""A pair's model: which head predicts, and what a kind of work corrects."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from routing_policies.quality.general import GeneralHead
from routing_policies.quality.guard import NoveltyGuard
from routing_policies.quality.model import KindCorrection, PairModel, Prediction
from tests.routing_policies.quality.recognizers import RECOGNIZER
from tests.routing_policies.quality.test_head import features, head

ANY = NoveltyGuard(words=frozenset({"add"}), max_unknown=0.5, lowest=(), highest=())
PAIR = PairModel(
    weak="s",
    strong="l",
    trained_on="test",
    num_prompts=1,
    text=head(bias=1.0),
    kinds=KindCorrection(scale=2.0, offsets={"sums": 0.5}),
    embedded=head(bias=10.0, vector=(1.0,)),
    embedded_kinds=KindCorrection(scale=0.5, offsets={"sums": -1.0}),
    guard=ANY,
)
VECTOR = np.array([3.0], dtype=np.float32)


@pytest.mark.parametrize(
    ("has_vector", "kind", "log_odds"),
    [(False, "", 1.0), (False, "sums", 2.5), (False, "new", 1.0), (True, "", 13.0), (True, "sums", 5.5)],
)
def test_an_embedding_chooses_the_head_and_a_known_kind_corrects_it(
    has_vector: bool, kind: str, log_odds: float
) -> None:
    found = PAIR.predict(features("add"), VECTOR if has_vector else None, kind=kind)
    assert found == Prediction(log_odds, True)


def test_a_model_without_an_embedded_head_predicts_by_the_text() -> None:
    plain = msgspec.structs.replace(PAIR, embedded=None)
    assert plain.predict(features("add"), VECTOR).log_odds == 1.0


def test_the_probability_of_an_unknown_prompt_is_nothing_whatever_its_log_odds() -> None:
    assert Prediction(0.0, True).probability == 0.5
    assert Prediction(9.0, False).probability == 0.0
    assert PAIR.predict(features("strange")).probability == 0.0


@pytest.mark.parametrize(
    ("text", "kind", "log_odds"),
    [("add", "", 0.25 + 1.5), ("strange", "", 0.25), ("add", "new", 0.25), ("add", "sums", 2.5)],
)
def test_the_general_head_predicts_for_every_kind_that_is_not_named_as_known(
    text: str, kind: str, log_odds: float
) -> None:
    cautious = msgspec.structs.replace(PAIR, general=GeneralHead(bias=0.25, weights=()), recognizer=RECOGNIZER)
    assert cautious.predict(features(text), VECTOR if kind == "" else None, kind=kind).log_odds == log_odds
