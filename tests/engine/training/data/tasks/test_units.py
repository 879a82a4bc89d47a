"""Conversions of units, in both directions and in the form of their numbers."""

import random
import re

import pytest

from engine.training.data.forms import pick_form
from engine.training.data.tasks import units
from tests.engine.training.data.test_forms import made


@pytest.mark.parametrize("row", [*units.TENS, *units.TABLES], ids=lambda row: row[0])
def test_units_are_converted_in_both_directions(row: units.Row) -> None:
    larger, smaller, factor = row
    rng = random.Random(8)
    seen = set()
    for _ in range(4000):
        table = {**units.FORMS["easy"], **units.FORMS["medium"]}
        conversion = pick_form(rng, table)[1](rng, "train")
        seen.add((conversion.unit, conversion.answer.split(" ", 1)[1]))
    assert (smaller, units.answered(str(factor), smaller).split(" ", 1)[1]) in seen
    assert (larger, units.answered("2", larger).split(" ", 1)[1]) in seen


@pytest.mark.parametrize(
    ("number", "unit", "answer"),
    [("1", "hours", "1 hour"), ("2", "hours", "2 hours"), ("1", "feet", "1 foot"), ("1", "euros", "1 euro"),
     ("1", "kilometres", "1 km"), ("1.5", "kilometres", "1.5 km"), ("1", "dozen", "1 dozen"), ("0", "days", "0 days")],
)  # fmt: skip
def test_a_unit_has_the_form_of_its_number(number: str, unit: str, answer: str) -> None:
    assert units.answered(number, unit) == answer


def test_units_are_written_in_full_short_american_and_as_one() -> None:
    prompts = " | ".join(example.prompt.lower() for example in made("units", "easy", count=4000))
    for text in ("1 kilometre ", "a kilometre", "one kilometre", " km ", "kilometers", "an hour", "one week", " 1 day"):
        assert text in prompts, text
    assert not re.search(r"\b1 (hours|minutes|weeks|days|metres|feet|euros)\b", prompts)


@pytest.mark.parametrize("form", ["mixed", "to mixed"])
def test_mixed_units_have_the_forms_of_their_numbers(form: str) -> None:
    rng = random.Random(9)
    conversions = [units.FORMS["hard"][form](rng, "train") for _ in range(2000)]
    texts = [conversion.quantity if form == "mixed" else conversion.answer for conversion in conversions]
    assert any(text.startswith("1 hour and ") for text in texts)
    assert not [text for text in texts if re.search(r"\b1 (hours|minutes|weeks|days|feet|inches)\b", text)]
