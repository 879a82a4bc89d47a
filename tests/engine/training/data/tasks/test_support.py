"""Questions about the shop."""

from __future__ import annotations

import random

import pytest

from engine.training.data.example import Split
from engine.training.data.facts import num_facts
from engine.training.data.tasks import (
    MAKERS,
    support,
)
from engine.training.data.tasks.support import RELATIONS, pick_relation


def test_the_shop_knows_a_few_hundred_facts_in_dozens_of_wordings() -> None:
    assert 300 <= num_facts() <= 500
    rng = random.Random(2)
    question = [MAKERS["support"](rng, "train", "easy") for _ in range(20_000)]
    about = [e.prompt for e in question if "costs" in e.answer and "Finland" in e.answer]
    assert len(set(about)) > 50


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_cheapest_of_a_few_has_the_lowest_price_of_those_named(split: Split) -> None:
    rng = random.Random(3)
    for _ in range(200):
        example = support.make(rng, split, "hard")
        relation = RELATIONS["shipping" if example.answer.startswith("Shipping") else "price"]
        prompt = example.prompt.casefold()
        named = {entity: int(value) for entity, value in relation.values.items() if entity.casefold() in prompt}
        (lowest,) = [entity for entity in named if entity in example.answer]
        assert named[lowest] == min(named.values())
        assert len(named) in (2, 3)


def test_a_relation_is_picked_of_its_difficulty_and_the_larger_ones_more_often() -> None:
    rng = random.Random(4)
    picked = [pick_relation(rng, "easy") for _ in range(2000)]
    assert {relation.difficulty for relation in picked} == {"easy"}
    counts = {relation.name: picked.count(relation) for relation in picked}
    sizes = {relation.name: len(relation.values) for relation in picked}
    assert max(sizes, key=sizes.__getitem__) in sorted(counts, key=counts.__getitem__)[-3:]
