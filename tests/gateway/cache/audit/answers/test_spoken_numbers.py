"""Numbers have one form, however they are written."""

from __future__ import annotations

import pytest

from gateway.cache.audit.answers.spoken_numbers import are_equal_numbers, is_number, tokens_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,000 and 1000 and a thousand", "1000 and 1000 and a 1000"),
        ("twenty-five, thirty five", "25 35"),
        ("two hundred and seven", "207"),
        ("three million five hundred thousand", "3500000"),
        ("3.50 million; 5k", "3500000 5000"),
        ("a dozen", "a 12"),
        ("one of them took one hour", "one of them took 1 h"),
        ("$5 or 5 dollars", "5 usd or 5 usd"),
        ("50% or fifty percent", "50 percent or 50 percent"),
        ("10:30 on 1/2/2020", "10:30 on 1/2/2020"),
        ("two three", "2 3"),
        ("can't, won't, isn't, cannot", "can not will not is not can not"),
        ("it's John’s", "it john"),
        ("hundred", "100"),
        ("", ""),
    ],
)
def test_a_text_becomes_words_and_values(text: str, expected: str) -> None:
    assert " ".join(tokens_of(text)) == expected


def test_rounded_fractions_are_equal_and_other_numbers_are_not() -> None:
    assert are_equal_numbers("3.14", "3.14159")
    assert are_equal_numbers("8848.86", "8849")
    assert not are_equal_numbers("3.14", "3.15")
    assert not are_equal_numbers("10", "100")
    assert not are_equal_numbers("10:30", "10")
    assert (is_number("3"), is_number("three")) == (True, False)
