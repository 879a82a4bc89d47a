"""Fields of a text as JSON."""

from __future__ import annotations

import json
import random
import re

import pytest

from engine.training.data.example import Difficulty
from engine.training.data.tasks import (
    extraction,
)


def test_extraction_answers_are_json_whose_values_are_in_the_text() -> None:
    rng = random.Random(5)
    for _ in range(100):
        example = extraction.make(rng, "test", "hard")
        value = json.loads(example.answer)
        for record in value if isinstance(value, list) else [value]:
            assert all(str(field) in example.prompt for field in record.values())


@pytest.mark.parametrize(("difficulty", "counts"), [("easy", {1, 2}), ("medium", {3})])
def test_a_record_has_the_fields_that_were_requested_in_their_order(difficulty: Difficulty, counts: set[int]) -> None:
    rng = random.Random(6)
    records = [extraction.make(rng, "train", difficulty) for _ in range(200)]
    found = [(example, json.loads(example.answer)) for example in records]
    question = [(example.prompt, list(value)) for example, value in found if isinstance(value, dict)]
    assert {len(fields) for _, fields in question} == counts
    for prompt, fields in question:
        places = [prompt.find(field) for field in fields]
        assert all(place >= 0 for place in places)


def test_a_list_has_everyone_in_the_order_of_the_text() -> None:
    rng = random.Random(7)
    examples = [extraction.make(rng, "test", "hard") for _ in range(100)]
    lists = [(example.prompt, value) for example in examples if isinstance(value := json.loads(example.answer), list)]
    assert {len(value) for _, value in lists} == {3, 4}
    for prompt, value in lists:
        assert re.findall(r"paid (\d+) euros", prompt) == [str(record["amount"]) for record in value]
