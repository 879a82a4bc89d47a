"""Numbers by value and units by what they measure, however they are written."""

from __future__ import annotations

import pytest

from gateway.cache.similarity.wording import Wording


@pytest.mark.parametrize(
    ("text", "numbers", "units"),
    [
        ("send 1,000 letters", ("1000",), set()),
        ("send a thousand letters", ("1000",), set()),
        ("10 mg twice", ("10", "2x"), {"mg"}),
        ("ten milligrams", ("10",), {"mg"}),
        ("10mg", ("10",), {"mg"}),
        ("twenty-five", ("25",), set()),
        ("two hundred and 5 km", ("200", "5"), {"km"}),
        ("5 million dollars", ("5000000",), {"usd"}),
        ("1,50,000 rupees", ("150000",), {"inr"}),
        ("a budget of 20k", ("20000",), set()),
        ("version 3.10", ("3.10",), set()),
        ("the 12th floor", ("12th",), set()),
        ("one hundred letters", ("100",), set()),
        ("1.5 million letters", ("1500000",), set()),
        ("20 five-letter words", ("20", "5"), set()),
        ("a tip of $20", ("20",), {"usd"}),
        ("a tip of 20 dollars", ("20",), {"usd"}),
        ("in World War II", ("2",), set()),
        ("in World War One", ("1",), set()),
        ("after Act V of the play", ("5",), set()),
        ("Did I see Louis XIV in Paris or not", ("14",), set()),
        ("a vitamin C pill", (), set()),
        ("the seventh floor", ("7th",), set()),
        ("50%", ("50",), {"percent"}),
        ("fifty percent", ("50",), {"percent"}),
        ("which one is it", (), set()),
        ("the first thing to do", (), set()),
        ("007", ("7",), set()),
        ("per week or per month", (), {"week", "month"}),
    ],
)
def test_numbers_are_read_by_value_and_units_by_what_they_measure(
    text: str, numbers: tuple[str, ...], units: set[str]
) -> None:
    wording = Wording.of(text)
    assert wording.numbers == numbers
    assert wording.units == units
