"""What a text says, whatever it looks like."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cache.similarity.normal_form import normal_form
from gateway.cache.similarity.stems import are_variants, stem_of
from gateway.cache.similarity.wording import MAX_WORDS, Wording


@pytest.mark.parametrize(
    ("shown", "plain"),
    [
        ("re\u200bset the\u00a0router", "reset the router"),
        ("\u202ereset the router", "reset the router"),
        ("ｒｅｓｅｔ the router", "reset the router"),
        ("r\u0435s\u0435t the router", "reset the router"),
        ("ρassword", "password"),
        ("don’t", "don't"),
        ("line\none", "line one"),
        ("null\x00byte", "nullbyte"),
    ],
)
def test_what_looks_the_same_is_the_same(shown: str, plain: str) -> None:
    assert normal_form(shown) == plain


def test_a_word_of_another_script_stays_what_it_is() -> None:
    assert normal_form("что это") == "что это"
    assert normal_form("Ελλάδα") == unicodedata.normalize("NFKC", "Ελλάδα")


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_a_normal_form_is_its_own_normal_form(text: str) -> None:
    once = normal_form(text)
    assert normal_form(once) == once


@given(st.text(max_size=400))
@settings(max_examples=300, deadline=None)
def test_every_text_can_be_taken_apart(text: str) -> None:
    wording = Wording.of(text)
    assert len(wording.words) <= MAX_WORDS


@pytest.mark.parametrize(
    ("text", "numbers", "units"),
    [
        ("send 1,000 letters", ("1000",), set()),
        ("send a thousand letters", ("1000",), set()),
        ("send one thousand letters", ("1000",), set()),
        ("10 mg twice", ("10", "2x"), {"mg"}),
        ("ten milligrams", ("10",), {"mg"}),
        ("10mg", ("10",), {"mg"}),
        ("twenty-five", ("25",), set()),
        ("two hundred and 5 km", ("200", "5"), {"km"}),
        ("5 million dollars", ("5000000",), {"usd"}),
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


def test_identifiers_are_told_from_words() -> None:
    codes = {word.text for word in Wording.of("open a_b.py with x86 and node.js, then wait").words if word.is_code}
    assert codes == {"a_b.py", "x86", "node.js"}


def test_names_are_words_with_capitals_where_not_all_have_them() -> None:
    assert [word.text for word in Wording.of("Where does Marta live in Porto").words if word.is_name] == [
        "marta",
        "porto",
    ]
    assert not any(word.is_name for word in Wording.of("WHERE DOES MARTA LIVE").words)
    assert not any(word.is_name for word in Wording.of("Where Does Marta Live Now").words)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("How do I get there?", "how"),
        ("how much does it weigh", "how much"),
        ("Is it heavy?", "whether"),
        ("What's its weight?", "what"),
        ("Tell me why it is heavy", "why"),
        ("Weigh it", ""),
    ],
)
def test_the_kind_of_question_is_what_first_asks(text: str, question: str) -> None:
    assert Wording.of(text).question == question


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("stop", "stopped"),
        ("stop", "stops"),
        ("bake", "baking"),
        ("city", "cities"),
        ("box", "boxes"),
        ("make", "making"),
    ],
)
def test_forms_of_a_word_share_a_stem(one: str, other: str) -> None:
    assert stem_of(one) == stem_of(other)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("improve", "improvement", True),
        ("develop", "developer", True),
        ("receive", "recieve", True),
        ("seperate", "separate", False),
        ("employer", "employee", False),
        ("import", "export", False),
        ("hot", "hop", False),
        ("careful", "careless", False),
        ("mentor", "mental", False),
    ],
)
def test_variants_are_other_endings_or_slips(one: str, other: str, expected: bool) -> None:
    assert are_variants(one, other) is expected
    assert are_variants(other, one) is expected
