"""Questions that need the messages before them."""

from __future__ import annotations

import random
import re

from engine.training.data.example import Example
from engine.training.data.tasks import (
    followup,
)
from engine.training.data.tasks.followup import SUBTRACTS
from engine.training.data.tasks.support import RELATIONS


def test_follow_ups_need_the_turn_before() -> None:
    rng = random.Random(6)
    example: Example = followup.make(rng, "test", "easy")
    assert [message["role"] for message in example.messages] == ["user", "assistant", "user"]


def test_a_change_is_added_to_or_taken_from_the_answer_before() -> None:
    rng = random.Random(7)
    sums = [found for _ in range(300) if (found := followup.make(rng, "train", "hard")).answer.lstrip("-").isdigit()]
    assert len(sums) > 50
    for example in sums:
        before, question = int(example.messages[-2]["content"]), example.prompt
        change = int(re.findall(r"\d+", question)[0])
        assert int(example.answer) == before + (-change if any(word in question for word in SUBTRACTS) else change)


def test_the_cheapest_is_the_one_with_the_lowest_of_the_prices_reported() -> None:
    rng = random.Random(8)
    examples = [found for _ in range(300) if "cheapest" in (found := followup.make(rng, "test", "hard")).answer]
    assert len(examples) > 50
    prices = RELATIONS["price"]
    for example in examples:
        stated = {message["content"] for message in example.messages if message["role"] == "assistant"}
        named = {item: int(price) for item, price in prices.values.items() if prices.sentence(item) in stated}
        assert example.answer == f"The {min(named, key=named.__getitem__)} is the cheapest."
