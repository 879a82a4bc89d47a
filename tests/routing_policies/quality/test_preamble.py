"""Beginnings that precede many different questions are removed, and the usual ones are not."""

from __future__ import annotations

import pytest

from routing_policies.quality.preamble import MIN_OPENINGS, MIN_QUESTIONS, PreambleMemory, opening_of

KNOWN = ["what is", "please add", "tell me", "how much", "why would", "explain to", "which of", "where can"]
KNOWN += ["who was", "name the", "count all", "sort these"]


def test_openings_that_were_learned_are_not_taken_for_a_preamble() -> None:
    memory = PreambleMemory(KNOWN)
    for number in range(50):
        text = f"What is the reason? Please add {number}"
        assert memory.strip(text) == text
    assert len(memory) == 1


def test_a_preamble_that_begins_as_training_did_is_taken_off() -> None:
    memory = PreambleMemory(KNOWN)
    for number in range(50):
        text = f"{KNOWN[number % 12]} number {number}"
        found = memory.strip(f"What is the proof? Think hard. {text}")
        assert (found == text) == (number >= MIN_OPENINGS - 1), number


def test_a_usual_beginning_with_many_ends_of_its_own_is_no_preamble() -> None:
    memory = PreambleMemory(KNOWN)
    for number in range(100):
        end = KNOWN[number // 5 % 12] if number % 5 == 0 else f"word{number} is"
        text = f"Tell me {end} here {number}"
        assert memory.strip(text) == text


def test_the_memory_of_preambles_is_bounded() -> None:
    memory = PreambleMemory(["what is"], max_entries=100)
    for number in range(500):
        memory.strip(f"noise{number} What is that?")
    assert len(memory) == 100


def test_a_preamble_is_removed_from_the_question_that_makes_it_one() -> None:
    memory = PreambleMemory(["what is"])
    stripped = [memory.strip(f"Zzq wxv prove this: What is {number}?") for number in range(MIN_QUESTIONS + 1)]
    assert stripped[: MIN_QUESTIONS - 1] == [f"Zzq wxv prove this: What is {n}?" for n in range(MIN_QUESTIONS - 1)]
    assert stripped[MIN_QUESTIONS - 1 :] == [f"What is {n}?" for n in (MIN_QUESTIONS - 1, MIN_QUESTIONS)]


def test_texts_of_one_sender_make_no_preamble_for_another() -> None:
    memory = PreambleMemory(["what is"])
    texts = [f"Zzq wxv prove this: What is {number}?" for number in range(MIN_QUESTIONS + 1)]
    for text in texts:
        memory.strip(text, "a")
    assert memory.strip(texts[0], "b") == texts[0]
    assert memory.strip(texts[0], "a") == "What is 0?"


def test_the_same_question_again_and_again_makes_no_preamble() -> None:
    memory = PreambleMemory(["what is"])
    text = "Dear machine, tell me: What is the time?"
    assert {memory.strip(text) for _ in range(50)} == {text}


@pytest.mark.parametrize(
    ("text", "opening"),
    [
        ("What is this?", "what is"),
        ('"Please, ADD 3', "please add"),
        ("Hello", "hello"),
        ("", ""),
        ("(What) is?", "what is"),
    ],
)
def test_an_opening_is_two_words_without_marks(text: str, opening: str) -> None:
    assert opening_of(text.split()) == opening
