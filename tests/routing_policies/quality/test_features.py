"""What is read of a prompt, and that nothing in it grows without bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing_policies.quality.features import NUMBERS, features_of
from routing_policies.quality.prompt import TAIL_CHARS, Prompt


def number(name: str, text: str) -> float:
    return features_of(Prompt(text)).numbers[NUMBERS.index(name)]


@given(st.text(max_size=2000), st.text(max_size=300), st.integers(0, 10**6))
def test_every_number_but_a_size_is_between_nothing_and_one(text: str, earlier: str, size: int) -> None:
    found = features_of(Prompt(text, earlier, num_turns=3, num_chars=size))
    assert len(found.numbers) == len(NUMBERS)
    assert all(
        0.0 <= value <= (2.0 if name == "all_chars" else 1.0)
        for name, value in zip(NUMBERS, found.numbers, strict=True)
    )


@pytest.mark.parametrize("text", ["a" * 4095, "a" * 9000, "word " * 40_000])
def test_longer_texts_differ_however_long_they_are(text: str) -> None:
    for column in map(NUMBERS.index, ("chars", "all_chars", "earlier_chars")):
        once, twice = (features_of(Prompt(one, one, num_chars=len(one))).numbers[column] for one in (text, 2 * text))
        assert twice - once == pytest.approx(1 / 12, abs=1e-3)


def test_each_letter_of_a_script_without_spaces_is_a_word() -> None:
    assert features_of(Prompt("\u4ec0\u4e48\u662fTCP 3?")).shapes == ["\u4ec0", "\u4e48", "\u662f", "tcp", "<1>"]
    assert features_of(Prompt("\u304b\u30ca")).words == {"\u304b", "\u30ca", "\u304b \u30ca", "all"}
    assert features_of(Prompt("na\u00efve \u0434\u043e\u043c")).shapes == ["na\u00efve", "\u0434\u043e\u043c"]


@pytest.mark.parametrize(
    ("name", "less", "more"),
    [
        ("chars", "a", "a" * 100),
        ("numbers", "one", "1 and 2"),
        ("longest_number", "12", "1234"),
        ("decimals", "1 2", "1.5 2.5"),
        ("operators", "3 4", "3 * 4 + 5"),
        ("questions", "so.", "so?"),
        ("lines", "a b", "a\nb"),
        ("code", "f x", "f(x) { return [x]; }"),
        ("foreign", "so", "søø"),
        ("options", "A cat", "A. cat\nB. dog"),
        ("sentences", "a b", "A. B. C"),
        ("repeats", "a b c", "a a a"),
        ("capitals", "ann lee", "Ann Lee"),
        ("listed", "Sort: a b", "Sort: a b c d e"),
        ("named", "Bo ran. Where is Ann?", "Ann ran. Where is Ann?"),
        ("echoed", "It rained. What was the colour?", "The colour was red. What was the colour?"),
        ("distance", "So Ann ran. Where is Ann?", "Ann ran far away to the sea. It rained. Where is Ann?"),
        ("largest", "Add 31 and 4", "Add 58 and 4"),
        ("largest", "1, 2, 3 and 400", "40 and 2"),  # a sum has few numbers
        ("second", "58 - 4", "58 - 9"),
        ("carries", "Add 31 and 4", "Add 38 and 4"),
        ("carries", "38 minus 4", "31 minus 4"),
        ("reversing", "Say it: a b", "Say it backwards: a b"),
        ("adding", "3 4", "3 + 4"),
    ],
)
def test_each_figure_reports_less_from_more(name: str, less: str, more: str) -> None:
    assert number(name, less) < number(name, more)
    assert number(name, less) == number(name, less)


def test_words_are_those_of_the_end_with_numbers_by_their_shape() -> None:
    found = features_of(Prompt("far away " + "x" * TAIL_CHARS + " Add 12 and 3.5", earlier="And books?"))
    assert {
        "add",
        "<2>",
        "<1.1>",
        "add <2>",
        "<2> and",
        "before books",
        "all <2> <1.1>",
        "adding all <2> <1.1>",
    } <= found.words
    assert "far" not in found.words
    assert found.shapes[-4:] == ["add", "<2>", "and", "<1.1>"]


def test_numbers_of_the_message_before_count_by_the_largest() -> None:
    column = NUMBERS.index("earlier_largest")
    none, small, large = (features_of(Prompt("Add 3.", earlier)).numbers[column] for earlier in ("", "2 + 4", "2 + 40"))
    assert none == 0.0 < small < large


def test_figures_do_not_report_which_number_was_written() -> None:
    notified = {number("largest", f"My code is {code}.") for code in range(4000, 4096)}
    assert len(notified) <= 3


def test_a_prompt_without_words_is_nothing_and_no_error() -> None:
    assert features_of(Prompt("")).words == set()
