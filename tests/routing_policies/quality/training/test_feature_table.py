"""A file predicts what was fitted, even for figures that lie just at a split."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from routing_policies.quality.features import Features
from routing_policies.quality.head import Head
from routing_policies.quality.training.feature_table import FeatureTable
from tests.routing_policies.quality.prompts import outcomes

FEATURES = [outcome.features for _, outcome in outcomes(1, 500)]


@pytest.mark.parametrize(("name", "num_digits"), [("as they are", 17), ("as labels keep them", 5)])
def test_coefficients_state_of_every_prompt_what_they_were_fitted_to_state(name: str, num_digits: int) -> None:
    table = FeatureTable(FEATURES)
    found = np.random.default_rng(2).normal(size=table.num_columns)
    head = msgspec.json.decode(msgspec.json.encode(table.head(0.5, found)), type=Head)
    for features, fitted in zip(FEATURES, 0.5 + table.rows(FEATURES) @ found, strict=True):
        stored = Features([round(number, num_digits) for number in features.numbers], features.words, features.shapes)
        assert head.log_odds(stored) == pytest.approx(float(fitted), abs=0.01), name
