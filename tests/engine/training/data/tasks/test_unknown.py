"""Questions that only one sentence answers rightly."""

from __future__ import annotations

import random

from engine.training.data.example import DIFFICULTIES
from engine.training.data.facts import BRANCHES, COUNTRIES, PRODUCTS
from engine.training.data.tasks import (
    unknown,
)
from engine.training.data.tasks.passage import UNKNOWN


def test_an_unknown_country_is_none_of_ours() -> None:
    assert not set(unknown.NOT_SERVED) & set(COUNTRIES)


def test_the_answer_is_the_same_sentence_at_every_difficulty() -> None:
    rng = random.Random(1)
    for difficulty in DIFFICULTIES:
        assert {unknown.make(rng, "train", difficulty).answer for _ in range(50)} == {UNKNOWN}


def test_a_stranger_to_the_shop_is_none_of_its_countries_branches_and_products() -> None:
    rng = random.Random(2)
    known = {name.casefold() for name in (*COUNTRIES, *BRANCHES, *PRODUCTS)}
    for _ in range(300):
        prompt = unknown.make(rng, "test", "medium").prompt.casefold()
        assert not [name for name in known if f" {name}" in prompt], prompt
