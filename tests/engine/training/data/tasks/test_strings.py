"""Lists of words and counting."""

import random
import re

import pytest

from engine.training.data.tasks import TRAINING_ONLY, strings
from tests.engine.training.data.test_forms import made


def test_counting_to_a_number_goes_to_every_number_up_to_fifty() -> None:
    rng = random.Random(5)
    examples = [TRAINING_ONLY["counting"](rng, "train", "easy") for _ in range(5000)]
    to = {int(example.answer.split()[-1]) for example in examples if example.form in ("count to", "count to far")}
    assert to == set(range(1, 51))
    for example in examples:
        numbers = [int(number) for number in example.answer.split()]
        step = -1 if example.form == "count down" else 1
        assert numbers == list(range(numbers[0], numbers[-1] + step, step))
        assert str(numbers[-1]) in re.findall(r"\d+", example.prompt) or example.prompt.endswith("one")


@pytest.mark.parametrize("form", ["count", "count far", "count down"])
def test_counting_begins_at_nothing_crosses_tens_and_takes_few_and_many_steps(form: str) -> None:
    rng = random.Random(6)
    counted = [strings.COUNTING[form](rng, "train")[1].split() for _ in range(2000)]
    assert any("0" in numbers for numbers in counted)
    lengths = {len(numbers) for numbers in counted}
    assert lengths == set(range(min(lengths), max(lengths) + 1))
    assert min(lengths) == (20 if form == "count far" else 2)


def test_lists_have_one_item_or_many_with_and_without_commas() -> None:
    easy = [example for example in made("strings", "easy") if example.form == "first or last"]
    items = [len(example.prompt.split(": ", 1)[-1].split()) for example in easy if ": " in example.prompt]
    assert set(items) >= set(range(1, 9))
    assert {", " in example.prompt for example in easy} == {True, False}
    medium = {example.form: set[int]() for example in made("strings", "medium")}
    for example in made("strings", "medium"):
        medium[example.form].add(len(example.answer.split()))
    assert medium["reverse"] == {2, 3, 4, 5}
    assert medium["reverse letters"] == {2, 3, 4, 5}
    assert medium["sort few"] == {2, 3}


def test_a_tally_may_be_nothing() -> None:
    found = {example.answer for example in made("strings", "medium") if example.form == "tally"}
    assert found == {"0", "1", "2", "3", "4", "5"}
