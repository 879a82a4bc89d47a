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
        ("twenty-five", ("20", "5"), set()),
        ("two hundred and 5 km", ("2", "100", "5"), {"km"}),
        ("5 million dollars", ("5", "1000000"), {"usd"}),
        ("1,50,000 rupees", ("150000",), {"inr"}),
        ("a budget of 20k", ("20000",), set()),
        ("version 3.10", ("3.10",), set()),
        ("the 2nd floor", ("2th",), set()),
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
