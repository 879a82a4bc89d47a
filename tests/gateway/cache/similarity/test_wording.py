"""A text taken apart: names, identifiers, the kind of question."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cache.similarity import wording
from gateway.cache.similarity.wording import MAX_WORDS, Wording, in_one_language


@given(st.text(max_size=400))
@settings(max_examples=300, deadline=None)
def test_every_text_can_be_taken_apart(text: str) -> None:
    wording = Wording.of(text)
    assert len(wording.words) <= MAX_WORDS


def test_identifiers_are_distinguished_from_words() -> None:
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
def test_the_kind_of_question_is_what_first_calls(text: str, question: str) -> None:
    assert Wording.of(text).question == question


def test_two_texts_are_read_in_a_language_that_both_may_be_of() -> None:
    short, whole = Wording.of("Höhe von Porto?"), Wording.of("Wie ist die Höhe von Porto und Braga?")
    assert [wording.language for wording in in_one_language(short, whole)] == ["german", "german"]
    english = Wording.of("How high is the mill of Porto?")
    assert in_one_language(english, whole) == (english, whole)


def test_a_noun_in_german_is_no_name() -> None:
    assert not any(word.is_name for word in Wording.of("Wie hoch ist die Brücke von Porto?").words)


def test_a_part_of_a_program_keeps_its_form() -> None:
    assert [word.stem for word in Wording.of("What does sorted do in Python?").words if word.is_code] == ["sorted"]
    assert not any(word.is_code for word in Wording.of("What does sorted do in Porto?").words)
    assert not any(word.text == "the" and word.is_code for word in Wording.of("Is the loop of Python slow?").words)


@pytest.mark.parametrize("part", ["a'", "a.a", "1'", "a_'", "`a", "a+"])
def test_a_word_without_an_end_takes_time_by_its_length(part: str) -> None:
    begun = time.process_time()
    Wording.of(part * 20_000)
    assert time.process_time() - begun < 1.0


def test_numbers_codes_and_endless_words_take_no_place_in_the_memory_of_words() -> None:
    text = "how many apples did order {0} of customer b{0}x1 have {1}"
    Wording.of(text.format(0, ""))
    num_before = wording._remembered.cache_info().currsize
    for number in range(100):
        assert Wording.of(text.format(10**8 + number, "ab" * (20 + number))).numbers == (str(10**8 + number),)
    assert wording._remembered.cache_info().currsize == num_before
    Wording.of(text.format(0, "quixotic"))
    assert wording._remembered.cache_info().currsize == num_before + 1
