"""Letters whose case makes another unit, acronym or symbol of them."""

from __future__ import annotations

import pytest

from gateway.cache.grammar.letter_case import letter_case


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Is 3 kB much?", "Is 3 kb much?", True),
        ("Is a Mb more than this?", "Is a MB more than this?", True),
        ("Is 3 KB much?", "Is 3 kB much?", False),
        ("Is 3 KB much?", "is 3 kb much", False),
        ("Is 3 GB much?", "Is 3 gb much?", False),
        ("Is 3 Mm far?", "is 3 mm far", True),
        ("Is 3 MM far?", "Is 3 mm far?", False),
        ("Is 3 mL much?", "Is 3 ml much?", False),
        ("Is mm a unit?", "Is Mm a unit?", False),
        ("Is it 3 PM?", "Is it 3 pm?", False),
        ("IS 3 MB MUCH?", "Is 3 Mb much?", False),
    ],
)
def test_the_case_of_a_unit_counts_where_both_are_units(one: str, other: str, expected: bool) -> None:
    assert letter_case(one).has_other_unit(letter_case(other)) is expected
    assert letter_case(other).has_other_unit(letter_case(one)) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Where is a PIN put?", "Where is a pin put?", True),
        ("Do herons love IT?", "Do herons love it?", True),
        ("How heavy is CO here?", "How heavy is Co here?", True),
        ("Where is a PIN put?", "where is a pin put", False),
        ("Where Is A Pin Put?", "Where is a PIN put?", False),
        ("WHERE IS A PIN PUT?", "Where is a pin put?", False),
        ("PIN or moss, what lasts?", "Pin or moss, what lasts?", False),
        ("How do I learn SQL?", "How do I learn sql?", False),
        ("What STILL grows?", "What still grows?", False),
        ("How old is NASA?", "How old is Nasa?", False),
    ],
)
def test_an_acronym_is_another_word_than_its_letters(one: str, other: str, expected: bool) -> None:
    assert letter_case(one).has_other_word(letter_case(other)) is expected
    assert letter_case(other).has_other_word(letter_case(one)) is expected
