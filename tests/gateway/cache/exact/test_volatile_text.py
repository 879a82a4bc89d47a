"""Texts whose answer changes with the time or the sender."""

from __future__ import annotations

import time

import pytest

from gateway.cache.exact.volatile_text import volatility_of
from gateway.cache.similarity.normal_form import normal_form


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What time is it now?", {"time_dependent"}),
        ("What's today's weather?", {"time_dependent"}),
        ("Who won last night?", {"time_dependent"}),
        ("Do I have any meetings tomorrow?", {"time_dependent", "personal"}),
        ("What is my balance?", {"personal"}),
        ("How much do I owe?", {"personal"}),
        ("Am I eligible?", {"personal"}),
        ("Wie spät ist es?", {"time_dependent"}),
        ("Où est ma commande ?", {"personal"}),
        ("¿Cuál es mi saldo?", {"personal"}),
        ("Che tempo fa oggi?", {"time_dependent"}),
        ("Hoe laat is het?", {"time_dependent"}),
        ("Qual é o meu saldo?", {"personal"}),
        ("Который час?", {"time_dependent"}),
        ("现在几点了？", {"time_dependent"}),
        ("今何時ですか", {"time_dependent"}),
    ],
)
def test_the_time_and_the_sender_are_noticed(text: str, expected: set[str]) -> None:
    assert volatility_of(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "How do I cancel my order?",
        "Write a poem about my cat.",
        "Am I allowed to park here?",
        "Do I have to pay?",
        "Now explain recursion.",
        "What is alternating current?",
        "What is the capital of Australia?",
        "Wie backe ich Brot ohne Hefe?",
        "",
        "?!",
    ],
)
def test_general_questions_are_not(text: str) -> None:
    assert volatility_of(text) == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        *("today's date in Python", "how do I get the current time in JavaScript", "Explain the `now()` function"),
        *("What does Date.now() return?", "explain my.cnf", "What does `my` mean in Perl?"),
        *(
            "How does git log --since=yesterday work?",
            "the current through a resistor",
            "What is a coal mine used for?",
        ),
        *("How do I print the current working directory?", "How big is our galaxy?", "What's the time complexity?"),
        *("Hi, how do I cancel my order?", "Thanks. Now explain recursion.", "Wie sagt man guten Morgen auf Englisch?"),
        *("Hoe vaak moet ik weer trainen?", "курс лекций по алгебре", "什么是现在完成时?", "現在完了形とは何ですか"),
    ],
)
def test_words_that_only_look_volatile_are_not(text: str) -> None:
    assert volatility_of(text) == frozenset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, "time_dependent") for text in ("weather London", "What year is it?", "What is the time?")),
        *((text, "time_dependent") for text in ("Is it raining?", "Was kostet Bitcoin gerade?", "Il pleut à Paris ?")),
        *((text, "time_dependent") for text in ("What time is it in Java?", "Welchen Tag haben wir?")),
        *((text, "personal") for text in ("Do you know who I am?", "Where do I live?", "When do I get paid?")),
        *((text, "personal") for text in ("How do I see my balance? Just tell me my balance.", "Wie heiße ich?")),
        *((text, "personal") for text in ("Write a summary of my last order.", "¿Cuánto debo?", "Как меня зовут?")),
        *((text, "personal") for text in ("我叫什么名字?", "Combien je dois ?", "Hoe heet ik?", "Come mi chiamo?")),
    ],
)
def test_the_time_and_the_sender_are_noticed_in_other_words(text: str, expected: str) -> None:
    assert volatility_of(text) == {expected}


@pytest.mark.parametrize("text", ["`(" * 300, "`" + "(" * 599, "a" * 600, "a." * 300, "my. " * 150, "now " * 150])
def test_any_text_takes_little_time(text: str) -> None:
    begun = time.process_time()
    volatility_of(text)
    assert time.process_time() - begun < 0.1


def test_a_result_is_remembered_for_its_sender_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 49: otherwise the time of a request tells whether another tenant sent this text."""
    read: list[str] = []

    def noting(text: str) -> str:
        read.append(text)
        return normal_form(text)

    monkeypatch.setattr("gateway.cache.exact.volatile_text.normal_form", noting)
    num_read = []
    for sender in ("ours", "ours", "theirs"):
        volatility_of("Does the harbour of Porvoo freeze?", sender)
        num_read.append(len(read))
    assert num_read[0] == num_read[1] == num_read[2] / 2 > 0
