"""Written numbers: the last one of a text, in the notations that models use."""

from __future__ import annotations

import pytest

from gateway.cli.outcomes.written_number import last_numbers


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234,567.5", 1234567.5),
        ("1.234.567,5", 1234567.5),
        ("1.234,5 €", 1234.5),
        ("1\u202f234\u202f567", 1234567),
        ("1'234.50", 1234.5),
        ("12_000", 12000),
        ("3,14", 3.14),
        ("0,125", 0.125),
        ("1.234", 1.234),
        ("x = .5", 0.5),
        ("the values are 1,2,3", 3),
        ("5 - 3 = 2.", 2),
        ("from 1990-1995", 1995),
        ("(7)-2", 2),
        ("-$5.00", -5),
        ("so −4", -4),
        ("about 3/4", 0.75),
        ("-1/2", -0.5),
        (r"\boxed{\frac{3}{4}}", 0.75),
        ("on 12/25/2024", 2024),
        ("6.02 × 10^23", 6.02e23),
        (r"1.5 \times 10^{-3}", 1.5e-3),
        ("2.5e-3", 2.5e-3),
        ("It is \\boxed{42}.", 42),
        ("step 3: **18**", 18),
    ],
)
def test_a_number_is_read_in_the_notation_it_has(text: str, number: float) -> None:
    assert last_numbers(text) == pytest.approx((number,))


def test_groups_after_spaces_have_two_readings() -> None:
    assert set(last_numbers("1 200 000")) == {1_200_000, 0}
    assert set(last_numbers("the list 100 200 300")) == {100_200_300, 300}


@pytest.mark.parametrize("text", ["", "none", "1/0", "9" * 400, "1e999"])
def test_what_has_no_finite_value_is_no_number(text: str) -> None:
    assert last_numbers(text) == ()


def test_long_texts_are_read_in_linear_time() -> None:
    assert last_numbers("1 " * 10_000)
    assert last_numbers("1,111" * 4_000)
