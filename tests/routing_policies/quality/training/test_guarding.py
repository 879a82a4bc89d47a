"""Guards fitted to prompts: their range with a margin, and the share of new words that is usual."""

from __future__ import annotations

import numpy as np
import pytest

from routing_policies.quality.features import NUM_BOUNDED, Features
from routing_policies.quality.training.guarding import MARGIN, MOST_UNKNOWN, fitted_guard
from tests.routing_policies.quality.prompts import outcomes

FEATURES = [outcome.features for _, outcome in outcomes(1, 200)]
FOLDS = [np.arange(200) % 4 == number for number in range(4)]


def test_nearly_all_prompts_of_the_training_are_known() -> None:
    guard = fitted_guard(FEATURES, FOLDS)
    assert sum(guard.is_known(one) for one in FEATURES) >= 0.98 * len(FEATURES)
    assert len(guard.lowest) == len(guard.highest) == NUM_BOUNDED


def test_a_number_may_leave_the_range_of_the_training_by_the_margin_only() -> None:
    guard, column = fitted_guard(FEATURES, FOLDS), 0
    largest = max(FEATURES, key=lambda one: one.numbers[column])
    within, beyond = ([*largest.numbers] for _ in range(2))
    within[column] += 0.9 * MARGIN
    beyond[column] += 1.1 * MARGIN
    assert guard.is_known(largest._replace(numbers=within))
    assert not guard.is_known(largest._replace(numbers=beyond))


def test_words_of_a_single_prompt_are_not_known_and_new_words_are_usual_where_each_prompt_has_some() -> None:
    numbers = [0.5] * NUM_BOUNDED
    own = [Features(numbers, set(), ["add", f"own{number}"]) for number in range(8)]
    guard = fitted_guard(own, [np.arange(8) % 2 == 0, np.arange(8) % 2 == 1])
    assert guard.words == {"add"}
    assert guard.max_unknown == pytest.approx(0.5)


def test_a_text_without_a_known_word_is_unknown_however_many_the_training_has() -> None:
    strange = [
        one._replace(shapes=[] if number % 2 else [f"own{number}"]) if number % 20 < 2 else one
        for number, one in enumerate(FEATURES)
    ]
    guard = fitted_guard(strange, FOLDS)
    assert guard.max_unknown == MOST_UNKNOWN
    assert not guard.is_known(FEATURES[0]._replace(shapes=["un", "deux", "trois"]))
    assert not guard.is_known(FEATURES[0]._replace(shapes=[]))
    assert guard.is_known(FEATURES[0])
