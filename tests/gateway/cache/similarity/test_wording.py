"""A text taken apart: names, identifiers, the kind of question."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cache.grammar.lexicon import NEGATIONS
from gateway.cache.grammar.spelling import are_one_word
from gateway.cache.grammar.vocabulary import is_known
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


def test_words_that_only_one_sender_may_use_are_read_anew_for_each_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "how many apples did {0} order for Halvorsen, and did Halvorsen say {0}?"
    Wording.of(text.format("the"))
    before = wording._remembered.cache_info()
    read: list[str] = []
    properties_of = wording._properties_of

    def noted(word: str) -> wording._Known:
        read.append(word)
        return properties_of(word)

    monkeypatch.setattr(wording, "_properties_of", noted)
    others = ["zyxela", "zyxela", "b7x1", "100000001", "don't", "chatters", "\u738b\u5c0f\u660e"]
    for other in others:
        Wording.of(text.format(other))
    assert read == [word for other in others for word in (other, "halvorsen")]
    after = wording._remembered.cache_info()
    assert (after.misses, after.currsize) == (before.misses, before.currsize)
    assert after.hits > before.hits


@pytest.mark.parametrize("text", sorted(NEGATIONS))
def test_every_negation_is_known_with_a_slip_at_either_end(text: str) -> None:
    slips = {text[:at] + "q" + text[at + more :] for at in (0, len(text) - 1) for more in (0, 1)}
    slips |= {text[1::-1] + text[2:], text[:-2] + text[:-3:-1], text + "q", text[1:], text[:-1]}
    for slip in slips:
        is_negation = any(are_one_word(slip, negation) for negation in NEGATIONS) and not is_known(slip)
        assert (Wording.of(slip, "english").num_negations > 0) == (is_negation or slip in NEGATIONS), slip
