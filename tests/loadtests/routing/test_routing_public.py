"""The need of the large model: what a route would do with each prompt."""

from __future__ import annotations

import numpy as np

from loadtests.routing.routing_curve import Scores
from loadtests.routing.routing_public import DataSet, need_of
from routing_policies.quality.features import features_of
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.training.pair_trainer import PairTrainer
from tests.routing_policies.quality.prompts import outcomes

TEXTS = ["What is 3 plus 4?", "Why would the king be afraid of the lamp?", "Zwölf Boxkämpfer jagen Viktor quer."]


def test_a_prompt_unlike_the_training_needs_the_large_model_most_as_in_a_route() -> None:
    model = PairTrainer([outcome for _, outcome in outcomes(1, 300)]).fit(weak="s", strong="l", trained_on="test")
    features = [features_of(Prompt(text, num_chars=len(text))) for text in TEXTS]
    none = np.zeros(len(TEXTS))
    vectors = np.zeros((len(TEXTS), 1), dtype=np.float32)
    data = DataSet("set", TEXTS, features, np.array(["", "", ""]), vectors, Scores(none, none))
    easy, hard, strange = need_of(model, data, np.arange(3))
    assert easy < hard < strange == 0.0
